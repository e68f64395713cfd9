//! Sealed, self-describing blocks of rows in every layout, and selection on them.
