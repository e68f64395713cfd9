//! Schemas: namespaces of tables, views, indexes, sequences and functions.

use taut_types::{PUBLIC_SCHEMA, relation_name, sibling_name, split_relation_name};

use super::change::Change;
use super::{Catalog, View};

impl Catalog {
    /// Whether a schema exists.
    pub fn has_schema(&self, name: &str) -> bool {
        name == PUBLIC_SCHEMA || self.schemas.contains(name)
    }

    /// Names of all schemas: `public` first, then the others in the order of their names.
    pub fn schemas(&self) -> impl Iterator<Item = &str> {
        std::iter::once(PUBLIC_SCHEMA).chain(self.schemas.iter().map(String::as_str))
    }

    /// Names of the tables, views and sequences of a schema.
    pub fn relations_of_schema(&self, schema: &str) -> impl Iterator<Item = &str> {
        let tables = self.tables().map(|table| table.name.as_str());
        let views = self.views().map(|view| view.name.as_str());
        let sequences = self.sequences().map(|sequence| sequence.name.as_str());
        tables.chain(views).chain(sequences).filter(move |name| split_relation_name(name).0 == schema)
    }

    /// Names of the functions of a schema.
    pub fn functions_of_schema(&self, schema: &str) -> impl Iterator<Item = &str> {
        self.functions()
            .map(|function| function.name.as_str())
            .filter(move |name| split_relation_name(name).0 == schema)
    }

    /// Whether no table, view, index or sequence has this name.
    pub fn is_name_free(&self, name: &str) -> bool {
        self.table(name).is_none()
            && self.view(name).is_none()
            && self.sequence(name).is_none()
            && !self
                .tables()
                .any(|table| table.design.indexes.iter().any(|index| sibling_name(&table.name, &index.name) == name))
    }

    /// Upgrades the name of a relation from a catalog file or log record that may predate schemas. In such a name, a
    /// dot does not separate schema and name. Returns other names unchanged.
    pub(crate) fn upgraded_name(&self, stored: &str) -> String {
        let (schema, name) = split_relation_name(stored);
        match self.has_schema(&schema) && relation_name(&schema, &name) == stored {
            true => stored.to_owned(),
            false => relation_name(PUBLIC_SCHEMA, stored),
        }
    }
}

impl View {
    /// Upgrades the names of the view and of the relations that it reads: see [`Catalog::upgraded_name`].
    pub(crate) fn with_upgraded_names(mut self, catalog: &Catalog) -> Self {
        self.name = catalog.upgraded_name(&self.name);
        let relations = self.relations.into_iter();
        self.relations = relations.map(|(relation, columns)| (catalog.upgraded_name(&relation), columns)).collect();
        self
    }
}

impl Change {
    /// Whether the change contains the name of a relation.
    pub(super) fn has_relation_name(&self) -> bool {
        matches!(
            self,
            Self::CreateTable { .. }
                | Self::RenameTable { .. }
                | Self::CreateView { .. }
                | Self::DropView { .. }
                | Self::CreateSequence { .. }
                | Self::AlterSequence { .. }
                | Self::SetComment { .. }
        )
    }

    /// Upgrades the names of relations: see [`Catalog::upgraded_name`].
    pub(super) fn with_upgraded_names(&self, catalog: &Catalog) -> Self {
        let mut change = self.clone();
        let upgrade = |name: &mut String| *name = catalog.upgraded_name(name);
        match &mut change {
            Self::CreateTable { name, .. } | Self::RenameTable { name, .. } | Self::DropView { name } => upgrade(name),
            Self::CreateView { view, .. } => *view = view.clone().with_upgraded_names(catalog),
            Self::CreateSequence { sequence } | Self::AlterSequence { sequence, .. } => upgrade(&mut sequence.name),
            Self::SetComment { on, .. } => *on = on.clone().with_upgraded_name(catalog),
            _ => {}
        }
        change
    }
}
