//! The CSV or JSON files that a name in a query refers to. It can be one file, the files of a folder, or the files that
//! match a pattern such as `dir/*.csv`.

use std::io;
use std::path::{Path, PathBuf};

use datafusion::arrow::error::ArrowError;
use taut_sql::FileFormat;

use super::{file_error, message_error};
use crate::error::{QueryError, Result};

/// Finds the CSV or JSON files of a name, in the order of their names. `None` if there are none.
///
/// # Errors
/// If a folder cannot be listed, or the files have different formats.
pub(super) fn text_files(name: &str) -> Result<Option<(FileFormat, Vec<PathBuf>)>> {
    let path = Path::new(name);
    let files = if path.is_file() {
        vec![path.to_owned()]
    } else if path.is_dir() {
        files_of_folder(path).map_err(|error| io_error(path, error))?
    } else {
        matching_files(name)?
    };
    let formats: Vec<_> = files.iter().map(|file| FileFormat::of_path(file).ok()).collect();
    let is_text = |format: &FileFormat| matches!(format, FileFormat::Csv | FileFormat::Json);
    let Some(format) = formats.iter().flatten().find(|format| is_text(format)) else { return Ok(None) };
    match formats.iter().position(|other| other.as_ref() != Some(format)) {
        Some(other) => {
            let wanted = if *format == FileFormat::Csv { "CSV" } else { "JSON" };
            let message =
                format!("it is not a {wanted} file, as others are; all files of {name:?} must have one format");
            Err(message_error(&files[other], message))
        }
        None => Ok(Some((*format, files))),
    }
}

/// Returns the files in a folder, sorted by name. Skips names that begin with a dot or an underscore: programs use them
/// for markers, for example of a complete set of files.
fn files_of_folder(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in folder.read_dir()? {
        let entry = entry?;
        let is_marker = entry.file_name().to_string_lossy().starts_with(['.', '_']);
        if !is_marker && entry.path().is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

/// Files that match a pattern. No files if a name is not a pattern.
fn matching_files(pattern: &str) -> Result<Vec<PathBuf>> {
    if !pattern.contains(['*', '?', '[']) {
        return Ok(Vec::new());
    }
    let Ok(paths) = glob::glob(pattern) else { return Ok(Vec::new()) };
    let mut files = Vec::new();
    for path in paths {
        let path = path.map_err(|error| {
            let folder = error.path().to_owned();
            io_error(&folder, error.into())
        })?;
        if path.is_file() {
            files.push(path);
        }
    }
    Ok(files)
}

fn io_error(path: &Path, error: io::Error) -> QueryError {
    file_error(path, &ArrowError::IoError(error.to_string(), error))
}
