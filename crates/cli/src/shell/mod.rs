//! The shell of `taut sql`. A statement may have several lines and ends with a semicolon. Commands begin with a dot or
//! a backslash. The shell has history and completion.

mod commands;
mod completion;

use std::borrow::Cow;
use std::path::PathBuf;

use reedline::{
    ColumnarMenu, DefaultHinter, Emacs, FileBackedHistory, KeyCode, KeyModifiers, MenuBuilder, Prompt, PromptEditMode,
    PromptHistorySearch, Reedline, ReedlineEvent, ReedlineMenu, Signal, ValidationResult, Validator,
    default_emacs_keybindings,
};

use crate::execute::Executor;
use crate::failure::{Failure, print_stderr};
use crate::statement_splitter::StatementSplitter;
use commands::NextStep;
use completion::{Names, SqlCompleter};

/// Default maximum of rows that the shell shows of a result.
pub const ROWS_MAX_DEFAULT: usize = 100;

const MENU: &str = "completion";
/// Name of the input in error messages, such as `--> line:1:8`.
const INPUT_NAME: &str = "line";

/// Runs the shell until the end of input or `.quit`.
pub fn run(mut executor: Executor, database: &str) -> Result<(), Failure> {
    executor.timing = true;
    executor.never_exit_on_interrupt();
    executor.output.write_line(format!("Taut {} on {database}. .help for help.", env!("CARGO_PKG_VERSION")))?;
    executor.output.finish()?;
    let names = Names::default();
    names.refresh(&executor.session);
    let mut editor = editor(names.clone());
    loop {
        let line = match editor.read_line(&SqlPrompt) {
            Ok(Signal::Success(line)) => line,
            Ok(Signal::CtrlD) => return Ok(()),
            Ok(_) => continue,
            Err(error) => return Err(Failure::Output(error)),
        };
        match run_line(&mut executor, &line) {
            Ok(NextStep::ReadLine) => {}
            Ok(NextStep::Exit) | Err(Failure::Closed) => return Ok(()),
            Err(Failure::Interrupted) => print_stderr("interrupted"),
            Err(failure) => print_stderr(failure.text()),
        }
        names.refresh(&executor.session);
    }
}

/// Runs the command or the statements of a line. Stops at the first error.
fn run_line(executor: &mut Executor, line: &str) -> Result<NextStep, Failure> {
    if is_command(line) {
        return commands::run(executor, line.trim());
    }
    let mut splitter = StatementSplitter::default();
    splitter.push(line.as_bytes());
    while let Some(statement) = splitter.next_statement() {
        executor.run(&statement, INPUT_NAME)?;
    }
    if let Some(statement) = splitter.finish() {
        executor.run(&statement, INPUT_NAME)?;
    }
    Ok(NextStep::ReadLine)
}

fn is_command(line: &str) -> bool {
    line.trim_start().starts_with(['.', '\\'])
}

fn editor(names: Names) -> Reedline {
    let mut keys = default_emacs_keybindings();
    let complete = vec![ReedlineEvent::Menu(MENU.to_owned()), ReedlineEvent::MenuNext];
    keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, ReedlineEvent::UntilFound(complete));
    let menu = ColumnarMenu::default().with_name(MENU);
    let editor = Reedline::create()
        .with_edit_mode(Box::new(Emacs::new(keys)))
        .with_completer(Box::new(SqlCompleter::new(names)))
        .with_menu(ReedlineMenu::EngineCompleter(Box::new(menu)))
        .with_hinter(Box::new(DefaultHinter::default()))
        .with_validator(Box::new(UntilSemicolon))
        .with_quick_completions(true)
        .with_partial_completions(true)
        .use_bracketed_paste(true);
    const HISTORY_LINES_MAX: usize = 10_000;
    // The shell also works if the history file cannot be used.
    match history_file().and_then(|file| FileBackedHistory::with_file(HISTORY_LINES_MAX, file).ok()) {
        Some(history) => editor.with_history(Box::new(history)),
        None => editor,
    }
}

/// Path of the history file: `taut/history` in the state directory of the user.
fn history_file() -> Option<PathBuf> {
    let directory = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = directory("XDG_STATE_HOME")
        .or_else(|| directory("HOME").map(|home| home.join(".local/state")))
        .or_else(|| directory("LOCALAPPDATA"))?;
    Some(state.join("taut").join("history"))
}

/// Validator that ends the input at Enter if the statement or command is complete.
struct UntilSemicolon;

impl Validator for UntilSemicolon {
    fn validate(&self, line: &str) -> ValidationResult {
        let mut splitter = StatementSplitter::default();
        splitter.push(line.as_bytes());
        if is_command(line) || splitter.is_between_statements() {
            ValidationResult::Complete
        } else {
            ValidationResult::Incomplete
        }
    }
}

struct SqlPrompt;

impl Prompt for SqlPrompt {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        "taut".into()
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        "".into()
    }

    fn render_prompt_indicator(&self, _mode: PromptEditMode) -> Cow<'_, str> {
        "> ".into()
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        "  ... ".into()
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        format!("(history: {}) ", search.term).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_ends_with_a_semicolon_or_a_command() {
        let is_complete = |line| matches!(UntilSemicolon.validate(line), ValidationResult::Complete);
        for line in ["", ".tables", "\\d", " .help", "select 1;", "select ';';", "-- nothing"] {
            assert!(is_complete(line), "{line}");
        }
        for line in ["select 1", "select ';", "select 1; select", "/* ;"] {
            assert!(!is_complete(line), "{line}");
        }
    }
}
