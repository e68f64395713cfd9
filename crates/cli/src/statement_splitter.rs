//! Incremental splitter of a stream of SQL text into statements.
//!
//! ```text
//!   select ';' -- not; here        quotes, comments and dollar quotes hide semicolons
//!   from t; drop table t ;
//!         ^              ^         each visible one ends a statement
//! ```
//!
//! The splitter follows the lexical rules of PostgreSQL and has no grammar. It works on bytes: every character that it
//! searches for is ASCII, and longer UTF-8 characters have no ASCII bytes.

/// Position at which a statement begins in its source. Line and column count from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Line.
    pub line: u64,
    /// Column, in characters.
    pub column: u64,
}

/// Text of one statement, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementText {
    /// Text without the semicolon and without white space at both ends. Comments are included.
    pub text: String,
    /// Position of the first character of the text.
    pub start: Position,
}

/// Lexical state at the read offset.
#[derive(Clone, Debug, PartialEq, Eq)]
enum LexicalState {
    Code,
    /// `'...'` or `"..."`, with the quote. A doubled quote inside ends this state and begins it again, so it needs no
    /// separate state.
    Quoted(u8),
    /// `E'...'`, in which a backslash escapes the next byte.
    Escaped,
    LineComment,
    /// `/* ... */`, which nests.
    BlockComment {
        depth: u32,
    },
    /// `$tag$ ... $tag$`, with the whole delimiter.
    Dollar(Vec<u8>),
}

/// Splitter that collects text and returns complete statements.
#[derive(Debug)]
pub struct StatementSplitter {
    bytes: Vec<u8>,
    /// Read offset: count of `bytes` that have been scanned.
    scanned: usize,
    state: LexicalState,
    /// Whether the current statement has more than white space and comments.
    has_code: bool,
    /// Position of `bytes[0]`.
    origin: Position,
}

impl Default for StatementSplitter {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            scanned: 0,
            state: LexicalState::Code,
            has_code: false,
            origin: Position { line: 1, column: 1 },
        }
    }
}

impl StatementSplitter {
    /// Appends text. It may end anywhere, even inside a character.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next complete statement, or `None` if more text is needed. Skips empty statements.
    pub fn next_statement(&mut self) -> Option<StatementText> {
        while let Some(end) = self.find_end(false) {
            let has_code = std::mem::take(&mut self.has_code);
            let statement = self.take_statement(end, end + 1);
            if has_code {
                return Some(statement);
            }
        }
        None
    }

    /// Returns the statement after the last semicolon, at the end of the text. Returns `None` if only white space and
    /// comments are left.
    pub fn finish(&mut self) -> Option<StatementText> {
        if let Some(statement) = self.next_statement() {
            return Some(statement);
        }
        let end = self.find_end(true).unwrap_or(self.bytes.len());
        let is_open = !matches!(self.state, LexicalState::Code | LexicalState::LineComment);
        let has_code = std::mem::take(&mut self.has_code) || is_open;
        self.state = LexicalState::Code;
        let statement = self.take_statement(end, self.bytes.len());
        has_code.then_some(statement)
    }

    /// Whether the text so far ends between statements: only white space and comments follow the last complete
    /// statement, and no block comment is open. Removes all complete statements.
    pub fn is_between_statements(&mut self) -> bool {
        while self.next_statement().is_some() {}
        !self.has_code && matches!(self.state, LexicalState::Code | LexicalState::LineComment)
    }

    /// Scans to the next visible semicolon and returns its offset.
    ///
    /// A byte that may begin a token of two bytes is not scanned until the second byte is available, unless the text
    /// `is_final`.
    fn find_end(&mut self, is_final: bool) -> Option<usize> {
        while let Some(&byte) = self.bytes.get(self.scanned) {
            let next = self.bytes.get(self.scanned + 1).copied();
            if next.is_none() && !is_final && self.needs_next(byte) {
                return None;
            }
            let mut width = 1;
            match &mut self.state {
                LexicalState::Code => match (byte, next) {
                    (b';', _) => {
                        self.scanned += 1;
                        return Some(self.scanned - 1);
                    }
                    (b'-', Some(b'-')) => self.state = LexicalState::LineComment,
                    (b'/', Some(b'*')) => {
                        self.state = LexicalState::BlockComment { depth: 1 };
                        width = 2;
                    }
                    (b'\'' | b'"', _) => {
                        let escaped = byte == b'\'' && self.follows_escape_prefix();
                        self.state = if escaped { LexicalState::Escaped } else { LexicalState::Quoted(byte) };
                        self.has_code = true;
                    }
                    (b'$', _) if !self.follows_name() => match self.dollar_delimiter(is_final) {
                        DollarSign::Delimiter(delimiter) => {
                            width = delimiter.len();
                            self.state = LexicalState::Dollar(delimiter);
                            self.has_code = true;
                        }
                        DollarSign::Other => self.has_code = true,
                        DollarSign::Unknown => return None,
                    },
                    _ => self.has_code |= !byte.is_ascii_whitespace(),
                },
                LexicalState::Quoted(quote) if byte == *quote => self.state = LexicalState::Code,
                LexicalState::Escaped if byte == b'\\' || (byte == b'\'' && next == Some(b'\'')) => width = 2,
                LexicalState::Escaped if byte == b'\'' => self.state = LexicalState::Code,
                LexicalState::LineComment if byte == b'\n' => self.state = LexicalState::Code,
                LexicalState::BlockComment { depth } => match (byte, next) {
                    (b'/', Some(b'*')) => (*depth, width) = (depth.saturating_add(1), 2),
                    (b'*', Some(b'/')) if *depth == 1 => (self.state, width) = (LexicalState::Code, 2),
                    (b'*', Some(b'/')) => (*depth, width) = (*depth - 1, 2),
                    _ => {}
                },
                LexicalState::Dollar(delimiter) if byte == b'$' => {
                    let rest = &self.bytes[self.scanned..];
                    if rest.starts_with(delimiter) {
                        width = delimiter.len();
                        self.state = LexicalState::Code;
                    } else if rest.len() < delimiter.len() && !is_final {
                        return None;
                    }
                }
                LexicalState::Quoted(_)
                | LexicalState::Escaped
                | LexicalState::LineComment
                | LexicalState::Dollar(_) => {}
            }
            self.scanned = (self.scanned + width).min(self.bytes.len());
        }
        None
    }

    fn needs_next(&self, byte: u8) -> bool {
        match self.state {
            LexicalState::Code => matches!(byte, b'-' | b'/'),
            LexicalState::Escaped => matches!(byte, b'\'' | b'\\'),
            LexicalState::BlockComment { .. } => matches!(byte, b'/' | b'*'),
            LexicalState::Quoted(_) | LexicalState::LineComment | LexicalState::Dollar(_) => false,
        }
    }

    /// Whether the quote at the read offset follows an `E` that is not the end of a longer word.
    fn follows_escape_prefix(&self) -> bool {
        let Some((last, before)) = self.bytes[..self.scanned].split_last() else { return false };
        last.eq_ignore_ascii_case(&b'e') && !before.last().is_some_and(|byte| is_name_byte(*byte))
    }

    /// Whether the dollar sign at the read offset is part of a name.
    fn follows_name(&self) -> bool {
        self.bytes[..self.scanned].last().is_some_and(|byte| is_name_byte(*byte))
    }

    /// Token that the dollar sign at the read offset begins.
    fn dollar_delimiter(&self, is_final: bool) -> DollarSign {
        let rest = &self.bytes[self.scanned..];
        let tag = rest[1..].iter().take_while(|byte| is_name_byte(**byte) && **byte != b'$').count();
        match rest.get(1 + tag) {
            None if is_final => DollarSign::Other,
            None => DollarSign::Unknown,
            Some(b'$') if !rest[1].is_ascii_digit() => DollarSign::Delimiter(rest[..tag + 2].to_vec()),
            Some(_) => DollarSign::Other,
        }
    }

    /// Returns `bytes[..end]` as a statement and removes `bytes[..next]`.
    fn take_statement(&mut self, end: usize, next: usize) -> StatementText {
        let leading = self.bytes[..end].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        let start = advance(self.origin, &self.bytes[..leading]);
        let text = String::from_utf8_lossy(self.bytes[leading..end].trim_ascii_end()).into_owned();
        self.origin = advance(self.origin, &self.bytes[..next]);
        self.bytes.drain(..next);
        self.scanned = self.scanned.saturating_sub(next);
        StatementText { text, start }
    }
}

/// Token that begins with a dollar sign.
enum DollarSign {
    /// Dollar-quoted text with this delimiter.
    Delimiter(Vec<u8>),
    /// Something else, such as a parameter `$1`.
    Other,
    /// Not known yet: more text is needed.
    Unknown,
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || !byte.is_ascii()
}

/// Position after a text that begins at `from`.
fn advance(from: Position, bytes: &[u8]) -> Position {
    let is_character_start = |byte: &&u8| (**byte as i8) >= -0x40;
    match bytes.iter().rposition(|byte| *byte == b'\n') {
        None => {
            let characters = bytes.iter().filter(is_character_start).count();
            Position { line: from.line, column: from.column + characters as u64 }
        }
        Some(last) => {
            let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
            let characters = bytes[last + 1..].iter().filter(is_character_start).count();
            Position { line: from.line + lines as u64, column: 1 + characters as u64 }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits the text as a whole and byte by byte. Both must return the same statements.
    fn split(text: &str) -> Vec<String> {
        let collect = |pieces: Vec<&[u8]>| {
            let mut splitter = StatementSplitter::default();
            let mut statements = Vec::new();
            for piece in pieces {
                splitter.push(piece);
                statements.extend(std::iter::from_fn(|| splitter.next_statement()));
            }
            statements.extend(splitter.finish());
            statements
        };
        let whole = collect(vec![text.as_bytes()]);
        assert_eq!(collect(text.as_bytes().chunks(1).collect()), whole, "{text}");
        whole.into_iter().map(|statement| statement.text).collect()
    }

    #[test]
    fn only_visible_semicolons_end_a_statement() {
        let cases: [(&str, &[&str]); 20] = [
            ("", &[]),
            (" ;; \n ; ", &[]),
            ("select 1", &["select 1"]),
            ("select 1; select 2;", &["select 1", "select 2"]),
            ("select ';'';', \";\"\";\"; x", &["select ';'';', \";\"\";\"", "x"]),
            ("a -- ; not\n b; c", &["a -- ; not\n b", "c"]),
            ("a /* ; /* ; */ ; */ b; c", &["a /* ; /* ; */ ; */ b", "c"]),
            ("select E'\\';', 'a\\'; c", &["select E'\\';', 'a\\'", "c"]),
            ("select E'a''\\';'; c", &["select E'a''\\';'", "c"]),
            // No escape string: the `e` before the quote ends a longer word.
            ("select name'\\'; c", &["select name'\\'", "c"]),
            ("select $$;$$; b", &["select $$;$$", "b"]),
            ("select $a$;$b$;$a$; b", &["select $a$;$b$;$a$", "b"]),
            ("select $1; select a$b; c", &["select $1", "select a$b", "c"]),
            ("select 1 - 1; select 4 / 2; b", &["select 1 - 1", "select 4 / 2", "b"]),
            ("-- only a comment", &[]),
            ("/* one */ -- another", &[]),
            ("/* open", &["/* open"]),
            ("/* c */ ; -- d", &[]),
            ("select 'é;ü'; 'open ; ", &["select 'é;ü'", "'open ;"]),
            ("select 1 -", &["select 1 -"]),
        ];
        for (text, statements) in cases {
            assert_eq!(split(text), statements, "{text}");
        }
    }

    #[test]
    fn statements_have_their_start_position() {
        let mut splitter = StatementSplitter::default();
        splitter.push("select 'é'; b;\n\n  c\n;".as_bytes());
        let starts: Vec<_> = std::iter::from_fn(|| splitter.next_statement()).map(|found| found.start).collect();
        let expected = [(1, 1), (1, 13), (3, 3)].map(|(line, column)| Position { line, column });
        assert_eq!(starts, expected);
    }

    #[test]
    fn a_statement_is_returned_once_its_semicolon_is_pushed() {
        let mut splitter = StatementSplitter::default();
        splitter.push(b"select 1");
        assert_eq!(splitter.next_statement(), None);
        splitter.push(b";");
        assert_eq!(splitter.next_statement().map(|found| found.text).as_deref(), Some("select 1"));
    }

    #[test]
    fn a_line_is_complete_between_statements() {
        for (text, complete) in
            [("select 1;", true), ("select 1", false), ("a; b", false), ("a; -- x", true), ("'", false), ("/*", false)]
        {
            let mut splitter = StatementSplitter::default();
            splitter.push(text.as_bytes());
            assert_eq!(splitter.is_between_statements(), complete, "{text}");
        }
    }
}
