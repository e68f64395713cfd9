//! From keys to row positions: zone maps and sorted search.
