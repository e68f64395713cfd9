//! Progress bars of loads, rewrites, backups and restores, on standard error if that is a terminal.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use taut::{Progress, Session};

/// Minimum running time of an operation before it shows a bar.
const SHOWN_AFTER: Duration = Duration::from_millis(400);

/// Progress bar of the operations of a session.
#[derive(Clone, Default)]
pub struct ProgressDisplay {
    shared: Arc<Mutex<ProgressState>>,
}

/// The running operation, as the progress bar shows it.
#[derive(Default)]
struct ProgressState {
    operation: String,
    started: Option<Instant>,
    bar: Option<ProgressBar>,
    /// Text that is shown after the name of the operation.
    note: String,
    /// Expected rows, for operations whose total the session does not report.
    rows_expected: Option<u64>,
}

impl ProgressDisplay {
    /// Attaches a display to a session. `note` is shown after the name of the operation, for example the size of its
    /// input.
    pub fn attach(session: &Session, note: &str) -> Self {
        let display = Self::default();
        display.with_state(|state| state.note = note.to_owned());
        let shared = display.clone();
        session.on_progress(Some(Arc::new(move |progress| shared.with_state(|state| state.update(progress)))));
        display
    }

    /// Sets the expected rows, for sources whose length the session does not know.
    pub fn expect_rows(&self, rows: u64) {
        self.with_state(|state| state.rows_expected = Some(rows));
    }

    /// Removes the bar from the terminal.
    pub fn clear(&self) {
        self.with_state(|state| {
            state.started = None;
            if let Some(bar) = state.bar.take() {
                bar.finish_and_clear();
            }
        });
    }

    fn with_state(&self, change: impl FnOnce(&mut ProgressState)) {
        change(&mut self.shared.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl ProgressState {
    fn update(&mut self, progress: &Progress) {
        // A query has no bar, because it writes rows to the same terminal while it runs.
        if progress.operation == Progress::QUERY {
            return;
        }
        if self.started.is_none() || self.operation != progress.operation {
            if let Some(bar) = self.bar.take() {
                bar.finish_and_clear();
            }
            self.operation.clone_from(&progress.operation);
            self.started = Some(Instant::now());
        }
        let Some(started) = self.started else { return };
        if self.bar.is_none() && started.elapsed() >= SHOWN_AFTER {
            let bar = new_bar(progress.rows_total.or(self.rows_expected)).with_elapsed(started.elapsed());
            bar.set_message(format!("{} {}", self.operation, self.note).trim_end().to_owned());
            self.bar = Some(bar);
        }
        if let Some(bar) = &self.bar {
            bar.set_position(progress.rows_done);
        }
    }
}

/// Returns a bar if the total is known, else a spinner.
fn new_bar(rows_total: Option<u64>) -> ProgressBar {
    const WITH_TOTAL: &str = "{spinner} {msg} [{bar:30}] {human_pos}/{human_len} rows, {per_sec}, {eta} left";
    const WITHOUT_TOTAL: &str = "{spinner} {msg} {human_pos} rows, {per_sec}, {elapsed}";
    let bar = rows_total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    let template = if rows_total.is_some() { WITH_TOTAL } else { WITHOUT_TOTAL };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// A spinner with a message, for steps that report nothing while they run.
pub fn spinner(message: impl Into<std::borrow::Cow<'static, str>>) -> ProgressBar {
    let spinner = ProgressBar::new_spinner().with_message(message);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
        spinner.set_style(style);
    }
    spinner.enable_steady_tick(Duration::from_millis(120));
    spinner
}

/// Progress bar that counts bytes.
pub struct BytesDisplay {
    operation: &'static str,
    started: Instant,
    bar: Option<ProgressBar>,
}

impl BytesDisplay {
    /// Creates a display that counts time from now.
    pub fn new(operation: &'static str) -> Self {
        Self { operation, started: Instant::now(), bar: None }
    }

    /// Sets the number of bytes that are done, and the total.
    pub fn update(&mut self, done: u64, total: u64) {
        if self.bar.is_none() && self.started.elapsed() >= SHOWN_AFTER {
            let style = ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes}");
            let bar = ProgressBar::new(total).with_elapsed(self.started.elapsed());
            let bar = style.map_or_else(|_| bar.clone(), |style| bar.clone().with_style(style));
            bar.set_message(self.operation);
            self.bar = Some(bar);
        }
        if let Some(bar) = &self.bar {
            bar.set_length(total);
            bar.set_position(done);
        }
    }

    /// Removes the bar from the terminal.
    pub fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
