//! SQL on Taut: parser front, planning rules, scan, load and rewrite.
