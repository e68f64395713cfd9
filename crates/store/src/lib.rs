//! The database directory: disk, catalog, block files, cache, recovery.
