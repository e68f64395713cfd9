//! Temporary relations: tables, views and sequences that only one session sees, and that end with it.
//!
//! ```text
//!   newest permanent catalog   public.t  sales.u            the log and the files of the database
//!   temporary relations        pg_temp.t pg_temp.v          memory; blocks are on a disk of the session
//!   what the session sees      public.t  sales.u  pg_temp.t  pg_temp.v
//! ```
//!
//! The store handle of a session merges both: its snapshots, edits and transactions see one catalog. A commit divides
//! its changes again. The permanent ones are committed first. They may fail, but nothing can conflict with the
//! temporary ones, because only this session makes them (docs/adr/0046-temporary-relations.md).
//!
//! Ids of temporary tables and sequences are unique in the process and larger than all ids of permanent ones, so that
//! locks and cached plans distinguish them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use taut_types::{TEMPORARY_SCHEMA, is_temporary_relation};

use crate::catalog::AppliedEdit;
use crate::catalog::change::Change;
use crate::directory::Directory;
use crate::disk::Disk;
use crate::{Cache, Catalog, CommentTarget, SequenceId, TableId};

/// The smallest id of a temporary table or sequence.
const FIRST_ID: u64 = 1 << 62;

/// The temporary relations of one session.
#[derive(Debug)]
pub(crate) struct Temporary {
    /// Directory of the blocks. Their files are removed when their last holder is dropped.
    pub directory: Arc<Directory>,
    /// Held while a commit of the session runs, permanent changes included. Lock order: before the commits of the
    /// store.
    pub commits: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// A catalog of the temporary relations alone. `None` if there are none.
    relations: Option<Catalog>,
    /// The last merged catalog, and the permanent one in it. Weak, because an idle session must not keep the files of
    /// old versions.
    merged: Option<(Weak<Catalog>, Weak<Catalog>)>,
    /// [`Catalog::definitions_id`] of the last permanent catalog that was merged, and of the merged one.
    definitions: Option<(u64, u64)>,
}

/// Temporary part of an edit, which a commit publishes after the permanent part.
#[derive(Debug)]
pub(crate) struct TemporaryPart {
    relations: Catalog,
    changes_definitions: bool,
}

impl Temporary {
    /// Creates a session state without temporary relations. Their blocks will be stored on `disk`.
    pub fn new(disk: Arc<dyn Disk>, cache: Arc<Cache>) -> Self {
        let state = State { relations: None, merged: None, definitions: None };
        let directory = Arc::new(Directory::of_temporary_blocks(disk, cache));
        Self { directory, commits: Mutex::default(), state: Mutex::new(state) }
    }

    /// A permanent catalog with the temporary relations. `new_definitions_id` returns an unused
    /// [`Catalog::definitions_id`].
    pub fn merge(&self, permanent: &Arc<Catalog>, new_definitions_id: impl FnOnce() -> u64) -> Arc<Catalog> {
        let state = &mut *self.state.lock();
        let Some(relations) = &state.relations else { return Arc::clone(permanent) };
        if let Some((known, merged)) = &state.merged
            && std::ptr::eq(known.as_ptr(), Arc::as_ptr(permanent))
            && let Some(merged) = merged.upgrade()
        {
            return merged;
        }
        let mut merged = permanent.as_ref().clone();
        merged.schemas.insert_mut(TEMPORARY_SCHEMA.to_owned());
        relations.tables().for_each(|table| merged.tables.insert(Arc::clone(table)));
        relations.views.iter().for_each(|(name, view)| {
            merged.views.insert_mut(name.clone(), view.clone());
        });
        relations.sequences.iter().for_each(|(id, sequence)| {
            merged.sequences.insert_mut(*id, sequence.clone());
        });
        relations.comments().for_each(|(on, comment)| merged.comments.set(on, Some(comment)));
        merged.definitions_id = match state.definitions {
            Some((known, merged)) if known == permanent.definitions_id => merged,
            _ => new_definitions_id(),
        };
        state.definitions = Some((permanent.definitions_id, merged.definitions_id));
        let merged = Arc::new(merged);
        state.merged = Some((Arc::downgrade(permanent), Arc::downgrade(&merged)));
        merged
    }

    /// Divides an edit of a merged catalog, which was made from the catalog `permanent`. Returns its permanent part,
    /// and its temporary part if it changes temporary relations.
    pub fn divide(&self, edit: AppliedEdit, permanent: &Catalog) -> (AppliedEdit, Option<TemporaryPart>) {
        let has_temporary = edit.changes.iter().any(Change::is_temporary);
        if !has_temporary && self.state.lock().relations.is_none() {
            return (edit, None);
        }
        let AppliedEdit { mut catalog, changes, mut added, mut removed, mut relocations } = edit;
        let relations = take_temporary(&mut catalog);
        catalog.definitions_id = permanent.definitions_id;
        let is_permanent = |block: &Arc<crate::BlockFile>| !Arc::ptr_eq(block.directory(), &self.directory);
        added.retain(is_permanent);
        removed.retain(is_permanent);
        // Rows of temporary tables are replaced only by their session, while it has no transaction in progress. So no
        // transaction needs the relocations of these rows.
        relocations.retain(|(table, _)| !table.is_temporary());
        let (temporary, changes): (Vec<Change>, Vec<Change>) = changes.into_iter().partition(Change::is_temporary);
        let changes_definitions = !temporary.iter().all(Change::changes_only_rows);
        let part = has_temporary.then_some(TemporaryPart { relations, changes_definitions });
        (AppliedEdit { catalog, changes, added, removed, relocations }, part)
    }

    /// Publishes the temporary part of an edit.
    pub fn publish(&self, part: TemporaryPart) {
        let TemporaryPart { relations, changes_definitions } = part;
        let is_empty = relations.tables.len() == 0 && relations.views.is_empty() && relations.sequences.is_empty();
        let state = &mut *self.state.lock();
        let before = std::mem::replace(&mut state.relations, (!is_empty).then_some(relations));
        let has_same_definitions = !changes_definitions
            || matches!((&before, &state.relations), (Some(before), Some(after)) if before.has_same_definitions(after));
        if !has_same_definitions {
            state.definitions = None;
        }
        state.merged = None;
    }
}

/// Moves the temporary relations from a catalog to a new one, which is returned.
fn take_temporary(catalog: &mut Catalog) -> Catalog {
    let mut relations = Catalog::empty(catalog.database);
    let tables: Vec<_> = catalog.tables.with_ids_from(TableId(FIRST_ID)).map(Arc::clone).collect();
    for table in tables {
        catalog.tables.remove(table.id);
        relations.tables.insert(table);
    }
    let views: Vec<_> = catalog.views().filter(|view| is_temporary_relation(&view.name)).cloned().collect();
    for view in views {
        catalog.views.remove_mut(&view.name);
        relations.views.insert_mut(view.name.clone(), view);
    }
    let sequences: Vec<_> = catalog.sequences.range(SequenceId(FIRST_ID)..).map(|(_, found)| found.clone()).collect();
    for sequence in sequences {
        catalog.sequences.remove_mut(&sequence.id);
        relations.sequences.insert_mut(sequence.id, sequence);
    }
    let comments: Vec<_> = catalog.comments().filter(|(on, _)| on.is_temporary()).collect();
    let comments: Vec<_> = comments.into_iter().map(|(on, comment)| (on.clone(), comment.to_owned())).collect();
    for (on, comment) in comments {
        catalog.comments.set(&on, None);
        relations.comments.set(&on, Some(&comment));
    }
    catalog.schemas.remove_mut(TEMPORARY_SCHEMA);
    relations
}

/// Allocates the id of a temporary table or sequence.
fn allocate_id() -> u64 {
    static NEXT_ID: AtomicU64 = AtomicU64::new(FIRST_ID);
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

impl TableId {
    /// Whether the table is temporary.
    pub fn is_temporary(self) -> bool {
        self.0 >= FIRST_ID
    }

    pub(crate) fn allocate_temporary() -> Self {
        Self(allocate_id())
    }
}

impl SequenceId {
    /// Whether the sequence is temporary.
    pub fn is_temporary(self) -> bool {
        self.0 >= FIRST_ID
    }

    pub(crate) fn allocate_temporary() -> Self {
        Self(allocate_id())
    }
}

impl CommentTarget {
    /// Whether the object is temporary, or part of a temporary one.
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            Self::Table(table) | Self::Column(table, _) => table.is_temporary(),
            Self::View(view) | Self::ViewColumn(view, _) => is_temporary_relation(view),
            Self::Sequence(sequence) => sequence.is_temporary(),
            Self::Schema(_) | Self::Function(_) => false,
        }
    }
}

impl Change {
    /// Whether the change affects a temporary relation.
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            Self::SetComment { on, .. } => on.is_temporary(),
            Self::CreateView { view, .. } => is_temporary_relation(&view.name),
            Self::DropView { name } => is_temporary_relation(name),
            Self::CreateSequence { sequence } | Self::AlterSequence { sequence, .. } => sequence.id.is_temporary(),
            Self::DropSequence { sequence } | Self::AdvanceSequence { sequence, .. } => sequence.is_temporary(),
            other => other.table().is_some_and(TableId::is_temporary),
        }
    }
}
