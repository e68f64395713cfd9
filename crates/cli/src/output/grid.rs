//! Text in aligned rows and columns.
//!
//! ```text
//! text()                  markdown()
//!
//!  name  | sum            | name | sum |
//! -------+-----           | :--- | ---: |
//!  first | 1.5            | first | 1.5 |
//!  2nd   |  10            | 2nd | 10 |
//! ```

/// Alignment of the text in a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alignment {
    /// Left, for text.
    Left,
    /// Right, for numbers.
    Right,
}

/// Rows of cells under a header.
#[derive(Clone, Debug)]
pub struct Grid {
    header: Vec<String>,
    alignments: Vec<Alignment>,
    rows: Vec<Vec<String>>,
}

impl Grid {
    /// Creates a grid without rows.
    pub fn new<'a>(columns: impl IntoIterator<Item = (&'a str, Alignment)>) -> Self {
        let (header, alignments) =
            columns.into_iter().map(|(name, alignment)| (escape_control_characters(name), alignment)).unzip();
        Self { header, alignments, rows: Vec::new() }
    }

    /// Appends a row. Cells beyond the header are dropped, missing cells are empty.
    pub fn push(&mut self, mut cells: Vec<String>) {
        cells.resize(self.header.len(), String::new());
        for cell in &mut cells {
            if cell.chars().any(|c| c.is_control() && c != '\n') {
                *cell = escape_control_characters(cell);
            }
        }
        self.rows.push(cells);
    }

    /// Count of rows, without the header.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// The grid as text, aligned by spaces. A cell may have several lines.
    pub fn text(&self) -> String {
        let widths = self.widths();
        let mut text = String::new();
        self.push_line(&mut text, &self.header, &widths);
        let rule: Vec<_> = widths.iter().map(|width| "-".repeat(width + 2)).collect();
        text.push_str(&rule.join("+"));
        text.push('\n');
        for row in &self.rows {
            if row.iter().any(|cell| cell.contains('\n')) {
                let height = row.iter().map(|cell| cell.lines().count()).max().unwrap_or(0);
                for line in 0..height {
                    let part = |cell: &String| cell.lines().nth(line).unwrap_or_default().to_owned();
                    self.push_line(&mut text, &row.iter().map(part).collect::<Vec<_>>(), &widths);
                }
            } else {
                self.push_line(&mut text, row, &widths);
            }
        }
        text
    }

    /// The grid as a Markdown table.
    pub fn markdown(&self) -> String {
        let escape = |cell: &String| cell.replace('\\', "\\\\").replace('|', "\\|").replace('\n', "<br>");
        let line = |cells: &[String]| format!("| {} |\n", cells.iter().map(escape).collect::<Vec<_>>().join(" | "));
        let mut text = line(&self.header);
        let rule = |alignment: &Alignment| match alignment {
            Alignment::Left => ":---".to_owned(),
            Alignment::Right => "---:".to_owned(),
        };
        text += &line(&self.alignments.iter().map(rule).collect::<Vec<_>>());
        for row in &self.rows {
            text += &line(row);
        }
        text
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<_> = self.header.iter().map(|name| width_of(name)).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.lines().map(width_of).max().unwrap_or(0).max(*width);
            }
        }
        widths
    }

    fn push_line(&self, text: &mut String, cells: &[String], widths: &[usize]) {
        for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
            let padding = " ".repeat(width.saturating_sub(width_of(cell)));
            text.push_str(if column == 0 { " " } else { " | " });
            match self.alignments[column] {
                Alignment::Left => text.extend([cell, padding.as_str()]),
                Alignment::Right => text.extend([padding.as_str(), cell]),
            }
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
}

/// Width of a line of text on a terminal, in columns.
fn width_of(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { console::measure_text_width(text) }
}

/// Escapes or removes control characters except line feeds, so that values cannot control the terminal.
fn escape_control_characters(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut result, character| {
        match character {
            '\t' => result.push_str("    "),
            '\r' => {}
            '\n' => result.push('\n'),
            character if character.is_control() => result.extend(character.escape_unicode()),
            character => result.push(character),
        }
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        let mut grid = Grid::new([("name", Alignment::Left), ("sum", Alignment::Right)]);
        grid.push(vec!["first\nline|".to_owned(), "1.5".to_owned()]);
        grid.push(vec!["é\u{1b}[2J".to_owned(), "100".to_owned()]);
        grid
    }

    #[test]
    fn cells_are_aligned_and_harmless() {
        let lines =
            [" name       | sum", "------------+-----", " first      | 1.5", " line|      |", " é\\u{1b}[2J | 100"];
        assert_eq!(grid().text().lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn markdown_is_escaped() {
        let lines = ["| name | sum |", "| :--- | ---: |", "| first<br>line\\| | 1.5 |", "| é\\\\u{1b}[2J | 100 |"];
        assert_eq!(grid().markdown().lines().collect::<Vec<_>>(), lines);
    }
}
