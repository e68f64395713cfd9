//! How each change of a commit changes the catalog, when it is made and when it is read from the log.

use std::sync::Arc;

use taut_types::{ColumnIndex, TEMPORARY_SCHEMA, is_temporary_relation, split_relation_name};

use super::{CatalogEdit, RowOrder};
use crate::catalog::change::{Change, OldRows};
use crate::catalog::check::check_design;
use crate::catalog::columns::{add_column, drop_column, rename_column, set_type};
use crate::catalog::table_blocks::{
    append_blocks, columns_error, matches_design, partitions_of, replace_rows, set_nullable,
};
use crate::catalog::{
    CommentTarget, Constraints, Function, Sequence, SequenceId, Table, TableId, TablePartitions, View,
};
use crate::delta::{ContainerId, Misplaced};
use crate::error::CommitError;
use crate::relocations::RowRelocations;
use crate::{BlockFile, NewBlock};

impl CatalogEdit {
    /// Applies a change.
    ///
    /// # Errors
    /// If the change cannot be made. Nothing has changed then.
    pub(super) fn apply(&mut self, change: &Change) -> Result<(), CommitError> {
        match change {
            // The log contains no temporary relations, so it must not contain their schema either.
            Change::CreateSchema { name } | Change::DropSchema { name } if name == TEMPORARY_SCHEMA => {
                Err(CommitError::NoSchema { schema: name.clone() })
            }
            Change::CreateSchema { name } if self.catalog.has_schema(name) => {
                Err(CommitError::SchemaExists { schema: name.clone() })
            }
            Change::CreateSchema { name } => {
                self.catalog.schemas.insert_mut(name.clone());
                Ok(())
            }
            Change::DropSchema { name } => self.remove_schema(name),
            Change::CreateTable { table, name, schema, design } => {
                self.check_name(name, table.is_temporary())?;
                check_design(design, schema).map_err(|what| columns_error(name, schema, what))?;
                let table = Table::empty(*table, name, Arc::clone(schema), Arc::clone(design));
                let table = Table { partitions: partitions_of(design, 0), ..table };
                self.catalog.tables.insert(Arc::new(table));
                self.add_temporary_schema(name);
                Ok(())
            }
            Change::DropTable { table } => self.remove_table(*table),
            Change::Truncate { table } => self.remove_rows(*table),
            Change::RenameTable { table, name } => {
                self.check_name(name, table.is_temporary())?;
                let mut renamed = self.find(*table)?.as_ref().clone();
                self.check_no_view_on(&renamed.name)?;
                renamed.name.clone_from(name);
                self.catalog.tables.insert(Arc::new(renamed));
                Ok(())
            }
            Change::AppendBlocks { table, blocks } => {
                self.check_blocks(*table, blocks)?;
                self.change_table(*table, |table| {
                    table.content_version += 1;
                    append_blocks(table, blocks)
                })?;
                self.added.extend(blocks.iter().map(|block| Arc::clone(&block.file)));
                Ok(())
            }
            Change::ReplaceRows { table, old, new, order } => self.replace(*table, old, new, *order),
            Change::SetDesign { table, design } => self.change_table(*table, |table| {
                check_design(design, &table.schema).map_err(|what| columns_error(&table.name, &table.schema, what))?;
                if design.partition_by != table.design.partition_by {
                    table.partitions = partitions_of(design, table.blocks.len());
                }
                table.design = Arc::clone(design);
                Ok(())
            }),
            Change::SetPartitioning { table, partitioning } => self.change_table(*table, |table| {
                if !matches_design(partitioning, table) {
                    return Err(columns_error(&table.name, &table.schema, "partitions".to_owned()));
                }
                let of_blocks = vec![None; table.blocks.len()];
                let partitioning = partitioning.as_ref().clone();
                table.partitions = Some(Arc::new(TablePartitions { partitioning, of_blocks }));
                Ok(())
            }),
            Change::SetConstraints { table, constraints } => self.put_constraints(*table, constraints),
            Change::SetNullable { table, column, nullable } => {
                self.change_table(*table, |table| set_nullable(table, *column, *nullable))
            }
            Change::AddColumn { table, column, value } => {
                self.change_table(*table, |table| add_column(table, column, value.as_ref()))
            }
            Change::DropColumn { table, column } => self.remove_column(*table, *column),
            Change::RenameColumn { table, column, name } => {
                self.change_table(*table, |table| rename_column(table, *column, name))
            }
            Change::SetType { table, column, logical_type } => {
                let catalog = self.catalog.clone();
                self.change_table(*table, |table| set_type(table, *column, *logical_type, &catalog))
            }
            Change::CreateView { view, replaces } => self.put_view(view, *replaces),
            Change::DropView { name } => self.remove_view(name),
            Change::CreateFunction { function, replaces } => self.put_function(function, *replaces),
            Change::DropFunction { name } => self.remove_function(name),
            Change::CreateSequence { sequence } => {
                self.check_name(&sequence.name, sequence.id.is_temporary())?;
                self.add_temporary_schema(&sequence.name);
                self.put_sequence(sequence.clone())
            }
            Change::DropSequence { sequence } => self.remove_unowned_sequence(*sequence),
            Change::AlterSequence { sequence, restarts } => self.replace_sequence(sequence, *restarts),
            Change::AdvanceSequence { sequence, last, is_called } => {
                let found = self.find_sequence(*sequence)?.clone();
                let advanced = Sequence { last: *last, is_called: *is_called, ..found };
                self.put_sequence(advanced)
            }
            Change::SetComment { on, comment } => {
                if !on.exists(&self.catalog) {
                    return Err(CommitError::NoCommentedObject);
                }
                self.catalog.comments.set(on, comment.as_deref());
                Ok(())
            }
            Change::InsertRows { table, page, first, rows } => self.change_table(*table, |table| {
                table.content_version += 1;
                let appended = table.delta.append(&table.schema, (*page, *first), rows);
                appended.map_err(|Misplaced| CommitError::Misplaced { table: table.name.clone() })
            }),
            Change::DeleteRows { table, container, segment, rows } => self.change_table(*table, |table| {
                if !table.has_container(*container) {
                    return Err(CommitError::RowsChanged { table: table.name.clone() });
                }
                table.content_version += 1;
                table.delta.delete(*container, *segment, rows);
                Ok(())
            }),
        }
    }

    fn remove_schema(&mut self, name: &str) -> Result<(), CommitError> {
        if let Some(relation) = self.catalog.relations_of_schema(name).next() {
            let object = format!("relation {relation:?}");
            return Err(CommitError::SchemaNotEmpty { schema: name.to_owned(), object });
        }
        if let Some(function) = self.catalog.functions_of_schema(name).next() {
            let object = format!("function {function:?}");
            return Err(CommitError::SchemaNotEmpty { schema: name.to_owned(), object });
        }
        self.catalog.comments.set(&CommentTarget::Schema(name.to_owned()), None);
        match self.catalog.schemas.remove_mut(name) {
            true => Ok(()),
            false => Err(CommitError::NoSchema { schema: name.to_owned() }),
        }
    }

    fn remove_table(&mut self, table: TableId) -> Result<(), CommitError> {
        let dropped = Arc::clone(self.find(table)?);
        self.check_no_view_on(&dropped.name)?;
        if let Some(child) = dropped.constraints.referenced_by.iter().find(|child| **child != table) {
            let by = self.catalog.table_of(*child).map(|child| child.name.clone()).unwrap_or_default();
            return Err(CommitError::Referenced { table: dropped.name.clone(), by });
        }
        for key in dropped.constraints.foreign_keys.iter().filter(|key| key.table != table) {
            self.change_table(key.table, |parent| {
                Arc::make_mut(&mut parent.constraints).referenced_by.remove(&table);
                Ok(())
            })?;
        }
        self.catalog.tables.remove(table);
        self.catalog.comments.remove_if(|on| on.table() == Some(table));
        for owned in dropped.constraints.sequences.values() {
            self.remove_sequence(owned.sequence);
        }
        self.removed.extend(dropped.blocks.iter().map(Arc::clone));
        Ok(())
    }

    fn remove_rows(&mut self, table: TableId) -> Result<(), CommitError> {
        let removed = Arc::clone(&self.find(table)?.blocks);
        self.change_table(table, |table| {
            let (id, schema, design) = (table.id, Arc::clone(&table.schema), Arc::clone(&table.design));
            let empty = Table::empty(id, &table.name, schema, design);
            // Partition boundaries are not rows, so they stay.
            let partitions = table.partitions.as_ref().map(|partitions| {
                let partitioning = partitions.partitioning.clone();
                Arc::new(TablePartitions { partitioning, of_blocks: vec![] })
            });
            let (constraints, delta) = (Arc::clone(&table.constraints), table.delta.without_rows());
            *table = Table { partitions, constraints, delta, content_version: table.content_version + 1, ..empty };
            Ok(())
        })?;
        self.removed.extend(removed.iter().map(Arc::clone));
        Ok(())
    }

    fn replace(&mut self, table: TableId, old: &OldRows, new: &[NewBlock], order: RowOrder) -> Result<(), CommitError> {
        self.check_blocks(table, new)?;
        let removed = self.change_table(table, |table| replace_rows(table, old, new, order))?;
        self.added.extend(new.iter().map(|block| Arc::clone(&block.file)));
        let relocations = match order {
            RowOrder::SamePositions => Some(Arc::new(same_positions(&removed, new))),
            _ => old.relocations.clone(),
        };
        self.relocations.extend(relocations.map(|relocations| (table, relocations)));
        self.removed.extend(removed);
        Ok(())
    }

    fn put_constraints(&mut self, table: TableId, constraints: &Arc<Constraints>) -> Result<(), CommitError> {
        let changed = self.find(table)?;
        let fits = constraints.check(table, &changed.schema, &self.catalog);
        fits.map_err(|expected| CommitError::Constraints { table: changed.name.clone(), expected })?;
        self.change_table(table, |table| {
            table.constraints = Arc::clone(constraints);
            let lookup_columns = constraints.lookup_columns();
            table.delta.set_keys(lookup_columns.iter().map(|columns| &**columns));
            Ok(())
        })
    }

    fn remove_column(&mut self, table: TableId, column: ColumnIndex) -> Result<(), CommitError> {
        let children = self.children_with_keys_on(table, column)?;
        let owned = self.find(table)?.constraints.sequences.get(&column).copied();
        self.change_table(table, |table| drop_column(table, column))?;
        self.catalog.comments.drop_column(table, column);
        if let Some(owned) = owned {
            self.remove_sequence(owned.sequence);
        }
        for (child, constraints) in children {
            self.change_table(child, |child| {
                child.constraints = Arc::new(constraints);
                Ok(())
            })?;
        }
        Ok(())
    }

    fn put_view(&mut self, view: &View, replaces: bool) -> Result<(), CommitError> {
        if !(replaces && self.catalog.views.contains_key(&view.name)) {
            self.check_name(&view.name, is_temporary_relation(&view.name))?;
        }
        if !is_temporary_relation(&view.name)
            && let Some(relation) = view.relations.keys().find(|relation| is_temporary_relation(relation))
        {
            return Err(CommitError::Temporary { relation: relation.clone(), other: view.name.clone() });
        }
        self.catalog.views.insert_mut(view.name.clone(), view.clone());
        self.add_temporary_schema(&view.name);
        Ok(())
    }

    fn remove_view(&mut self, name: &str) -> Result<(), CommitError> {
        self.check_no_view_on(name)?;
        self.catalog.comments.remove_if(|on| on.view() == Some(name));
        match self.catalog.views.remove_mut(name) {
            true => Ok(()),
            false => Err(CommitError::NoView { name: name.to_owned() }),
        }
    }

    fn put_function(&mut self, function: &Function, replaces: bool) -> Result<(), CommitError> {
        let Function { name, .. } = function;
        let schema = split_relation_name(name).0;
        if is_temporary_relation(name) || !self.catalog.has_schema(&schema) {
            return Err(CommitError::NoSchema { schema: schema.into_owned() });
        }
        if !replaces && self.catalog.functions.contains_key(name) {
            return Err(CommitError::FunctionExists { name: name.clone() });
        }
        self.catalog.functions.insert_mut(name.clone(), function.clone());
        Ok(())
    }

    fn remove_function(&mut self, name: &str) -> Result<(), CommitError> {
        if let Some(view) = self.catalog.views_with_function(name).next() {
            return Err(CommitError::ViewCalls { function: name.to_owned(), view: view.name.clone() });
        }
        let on = CommentTarget::Function(name.to_owned());
        self.catalog.comments.set(&on, None);
        match self.catalog.functions.remove_mut(name) {
            true => Ok(()),
            false => Err(CommitError::NoFunction { name: name.to_owned() }),
        }
    }

    fn remove_unowned_sequence(&mut self, sequence: SequenceId) -> Result<(), CommitError> {
        let owns = |table: &&Arc<Table>| table.constraints.sequences.values().any(|owned| owned.sequence == sequence);
        if let Some(owner) = self.catalog.tables.iter().find(owns) {
            return Err(CommitError::ConstraintsChanged { table: owner.name.clone() });
        }
        match self.remove_sequence(sequence) {
            true => Ok(()),
            false => Err(CommitError::NoSequence { sequence }),
        }
    }

    fn replace_sequence(&mut self, sequence: &Sequence, restarts: bool) -> Result<(), CommitError> {
        let old = self.find_sequence(sequence.id)?;
        let from = if restarts { sequence } else { old };
        let (last, is_called) = (from.last, from.is_called);
        if old.name != sequence.name {
            self.check_name(&sequence.name, sequence.id.is_temporary())?;
        }
        self.put_sequence(Sequence { last, is_called, ..sequence.clone() })
    }

    /// Adds the temporary schema if a new relation is in it. A merged catalog contains this schema while the session
    /// has temporary relations.
    fn add_temporary_schema(&mut self, relation: &str) {
        if is_temporary_relation(relation) && !self.catalog.has_schema(TEMPORARY_SCHEMA) {
            self.catalog.schemas.insert_mut(TEMPORARY_SCHEMA.to_owned());
        }
    }

    /// The other tables with foreign keys to a table, and their constraints after a column of that table is dropped.
    ///
    /// # Errors
    /// If the table does not exist, or a foreign key references the column.
    fn children_with_keys_on(
        &self,
        table: TableId,
        column: ColumnIndex,
    ) -> Result<Vec<(TableId, Constraints)>, CommitError> {
        let parent = self.find(table)?;
        let children = parent.constraints.referenced_by.iter().filter(|child| **child != table);
        let shifted = |child: &TableId| {
            let constraints = self.find(*child)?.constraints.without_referenced_column(table, column);
            let name = || parent.schema.columns().get(column.index()).map(|column| column.name.clone());
            let in_use = || CommitError::ColumnInUse { table: parent.name.clone(), column: name().unwrap_or_default() };
            Ok((*child, constraints.ok_or_else(in_use)?))
        };
        children.map(shifted).collect()
    }

    /// Removes a sequence with its comment. Returns whether it existed.
    fn remove_sequence(&mut self, sequence: SequenceId) -> bool {
        self.catalog.comments.set(&CommentTarget::Sequence(sequence), None);
        self.catalog.sequences.remove_mut(&sequence)
    }

    fn put_sequence(&mut self, sequence: Sequence) -> Result<(), CommitError> {
        sequence.check().map_err(|expected| CommitError::Sequence { expected })?;
        self.catalog.sequences.insert_mut(sequence.id, sequence);
        Ok(())
    }

    /// Checks that the schema of a new name exists, and that nothing else has the name. The temporary schema exists for
    /// temporary relations, and only for them.
    fn check_name(&self, name: &str, is_temporary: bool) -> Result<(), CommitError> {
        let schema = split_relation_name(name).0;
        let exists = match is_temporary_relation(name) {
            true => is_temporary && self.temporary.is_some(),
            false => !is_temporary && self.catalog.has_schema(&schema),
        };
        if !exists {
            return Err(CommitError::NoSchema { schema: schema.into_owned() });
        }
        match self.catalog.is_name_free(name) {
            true => Ok(()),
            false => Err(CommitError::NameTaken { name: name.to_owned() }),
        }
    }

    fn check_no_view_on(&self, relation: &str) -> Result<(), CommitError> {
        match self.catalog.views_on(relation).next() {
            Some(view) => Err(CommitError::ViewDepends { relation: relation.to_owned(), view: view.name.clone() }),
            None => Ok(()),
        }
    }

    fn check_blocks(&self, table: TableId, blocks: &[NewBlock]) -> Result<(), CommitError> {
        let directory = self.directory_of(table);
        let foreign = blocks.iter().find(|block| !Arc::ptr_eq(block.file.directory(), directory));
        foreign.map_or(Ok(()), |block| Err(CommitError::ForeignBlock { block: block.file.id() }))
    }
}

/// Row relocations from old blocks to new blocks with the same rows at the same positions.
fn same_positions(old: &[Arc<BlockFile>], new: &[NewBlock]) -> RowRelocations {
    let containers = old.iter().zip(new).map(|(old, new)| (ContainerId::of(old.id()), ContainerId::of(new.file.id())));
    RowRelocations::of_blocks(containers.filter_map(|(old, new)| old.zip(new)))
}
