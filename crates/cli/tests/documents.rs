//! Runs the examples of the documents and compares their output with the output that the documents show. With
//! `TAUT_UPDATE=1`, writes the actual output to the documents.
//!
//! ````text
//! ```sql          statements for `taut sql shop.taut`, which ends at the first error
//! ```sh           commands for `sh -e`
//! ```text         directly after one of them: everything that it prints. Without it, the example must succeed.
//! <!-- sql        hidden statements, which create the tables of the examples; also `<!-- sh`
//! -->
//! ````
//!
//! The examples of a page run in their order in one directory, so they share files and the database `shop.taut`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::command;

const UPDATE_VARIABLE: &str = "TAUT_UPDATE";
const OUTPUT: &str = "```text";

/// Language of an example.
#[derive(Clone, Copy, Debug)]
enum Language {
    Sql,
    Shell,
}

/// A block of statements or commands.
#[derive(Debug)]
struct Example {
    language: Language,
    /// Line at which the block begins, counted from one.
    line: usize,
    code: String,
    /// Lines of the output that the page shows, without the fences.
    output: Option<Range<usize>>,
}

/// Language of the block that begins with a line, and the line that ends it.
fn block_of(line: &str) -> Option<(Language, &'static str)> {
    Some(match line {
        "```sql" => (Language::Sql, "```"),
        "```sh" => (Language::Shell, "```"),
        "<!-- sql" => (Language::Sql, "-->"),
        "<!-- sh" => (Language::Shell, "-->"),
        _ => return None,
    })
}

fn examples(lines: &[&str]) -> Vec<Example> {
    let find = |from: usize, end: &str| (from..lines.len()).find(|at| lines[*at] == end).expect("the block ends");
    let mut examples = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let start = at;
        let Some((language, fence)) = block_of(lines[start]) else {
            let is_other_block = lines[at].starts_with("```");
            at = if is_other_block { find(at + 1, "```") + 1 } else { at + 1 };
            continue;
        };
        let end = find(start + 1, fence);
        let next = (end + 1..lines.len()).find(|at| !lines[*at].is_empty());
        let output =
            next.filter(|next| fence == "```" && lines[*next] == OUTPUT).map(|next| next + 1..find(next, "```"));
        at = output.as_ref().map_or(end, |output| output.end) + 1;
        let code = lines[start + 1..end].join("\n") + "\n";
        examples.push(Example { language, line: start + 1, code, output });
    }
    examples
}

/// Runs an example in a directory. Returns whether it succeeded, and what it printed.
fn run(example: &Example, directory: &Path) -> (bool, String) {
    let printed = directory.with_extension("printed");
    let output = File::create(&printed).unwrap();
    let mut command = match example.language {
        // The plans that `EXPLAIN` shows depend on the number of threads.
        Language::Sql => command(&["sql", "--threads", "2", "shop.taut"]),
        Language::Shell => Command::new("sh"),
    };
    if let Language::Shell = example.language {
        command.arg("-e").env("PATH", path_with_taut());
    }
    // Both streams go to one file, so that notices and errors appear where a terminal shows them.
    command.current_dir(directory).stdin(Stdio::piped()).stdout(output.try_clone().unwrap()).stderr(output);
    let mut child = command.spawn().unwrap();
    // The write fails if the command ends without reading all of it, at an error.
    let _ = child.stdin.take().unwrap().write_all(example.code.as_bytes());
    let succeeded = child.wait().unwrap().success();
    (succeeded, std::fs::read_to_string(&printed).unwrap().trim_end().to_owned())
}

/// Value of `PATH` with the folder of `taut` first.
fn path_with_taut() -> OsString {
    let folder = Path::new(env!("CARGO_BIN_EXE_taut")).parent().unwrap().to_owned();
    let others = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(folder).chain(std::env::split_paths(&others))).unwrap()
}

/// Text of a page with the actual output of its examples. Adds a message to `wrong` for each example that prints other
/// output or fails unexpectedly.
fn with_outputs(page: &str, text: &str, wrong: &mut Vec<String>) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("page");
    std::fs::create_dir(&directory).unwrap();
    let (mut result, mut copied) = (String::new(), 0);
    let copy = |range: Range<usize>, result: &mut String| {
        lines[range].iter().for_each(|line| *result += &format!("{line}\n"));
    };
    for example in examples(&lines) {
        let (succeeded, printed) = run(&example, &directory);
        assert!(!printed.contains("panicked"), "{page}:{}: {printed}", example.line);
        match &example.output {
            None if !succeeded => wrong.push(format!("{page}:{}: the example fails:\n{printed}", example.line)),
            None => {}
            Some(shown) => {
                if lines[shown.clone()].join("\n") != printed {
                    wrong.push(format!("{page}:{}: the example prints:\n{printed}", example.line));
                }
                copy(copied..shown.start, &mut result);
                printed.lines().for_each(|line| result += &format!("{line}\n"));
                copied = shown.end;
            }
        }
    }
    copy(copied..lines.len(), &mut result);
    result
}

/// All documents in a folder and the folders in it, sorted.
fn documents(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        if path.is_dir() {
            found.extend(documents(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found
}

#[test]
fn examples_print_what_the_documents_show() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let pages = ["docs/guide", "docs/reference"].iter().flat_map(|folder| documents(&root.join(folder)));
    let mut wrong = Vec::new();
    for path in std::iter::once(root.join("README.md")).chain(pages) {
        let text = std::fs::read_to_string(&path).unwrap();
        let page = path.strip_prefix(&root).unwrap().display().to_string();
        let mut wrong_here = Vec::new();
        let found = with_outputs(&page, &text, &mut wrong_here);
        if found != text && std::env::var_os(UPDATE_VARIABLE).is_some() {
            std::fs::write(&path, found).unwrap();
        }
        wrong.extend(wrong_here);
    }
    let advice = format!("{UPDATE_VARIABLE}=1 cargo test --workspace --test documents writes what the examples print");
    assert!(wrong.is_empty(), "{}\n\n{advice}", wrong.join("\n\n"));
}
