//! One column of values to bytes and back, and search on the bytes.
