//! Shows the layouts of the blocks of a table as a strip such as `RRRRPPPPCCCC`. A letter stands for one block, or for
//! several blocks of a large table.

use crate::system_tables::BlockInfo;

/// Lines of the strip, then its legend. A line of letters has at most `width` characters if `width` is at least 22. The
/// legend is not wrapped.
pub fn lines(blocks: &[BlockInfo], width: usize) -> Vec<String> {
    const LINES_MAX: usize = 4;
    let letters_max = width.saturating_sub(12).max(20);
    let per_letter = blocks.len().div_ceil(letters_max * LINES_MAX).max(1);
    let letters: String = blocks.chunks(per_letter).map(letter_of).collect();
    let mut legend: Vec<_> = LETTERS.iter().filter(|(letter, _)| letters.contains(*letter)).map(legend_entry).collect();
    if letters.contains(MIXED) {
        legend.push(format!("{MIXED} several"));
    }
    let each =
        if per_letter == 1 { "one letter per block".to_owned() } else { format!("one letter per {per_letter} blocks") };
    let mut lines: Vec<_> =
        letters.as_bytes().chunks(letters_max).map(|line| format!("[{}]", String::from_utf8_lossy(line))).collect();
    let legend = format!("{each}: {}", legend.join(", "));
    match lines.as_mut_slice() {
        [only] if only.len() + legend.len() + 4 <= width => {
            only.push_str("  ");
            only.push_str(&legend);
        }
        _ => lines.push(legend),
    }
    lines
}

const LETTERS: [(char, &str); 4] = [('R', "row"), ('P', "packed_row"), ('C', "column"), ('G', "groups")];
const UNKNOWN: char = '?';
const MIXED: char = '*';

fn legend_entry((letter, layout): &(char, &str)) -> String {
    format!("{letter} {layout}")
}

fn letter_of(blocks: &[BlockInfo]) -> char {
    let letter = |block: &BlockInfo| {
        LETTERS.iter().find(|(_, layout)| *layout == block.layout).map_or(UNKNOWN, |(letter, _)| *letter)
    };
    let Some(first) = blocks.first().map(letter) else { return UNKNOWN };
    if blocks.iter().all(|block| letter(block) == first) { first } else { MIXED }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(layouts: &[(&str, usize)]) -> Vec<BlockInfo> {
        let repeat = |(layout, count): &(&str, usize)| {
            vec![BlockInfo { id: String::new(), layout: (*layout).to_owned(), rows: 1 }; *count]
        };
        layouts.iter().flat_map(repeat).collect()
    }

    #[test]
    fn each_block_has_its_letter() {
        let lines = lines(&blocks(&[("row", 2), ("packed_row", 1), ("column", 3), ("groups", 1)]), 100);
        assert_eq!(lines, ["[RRPCCCG]  one letter per block: R row, P packed_row, C column, G groups"]);
    }

    #[test]
    fn many_blocks_share_letters() {
        let lines = lines(&blocks(&[("row", 501), ("column", 500)]), 60);
        assert!(lines.iter().all(|line| line.len() <= 60), "{lines:?}");
        assert!(lines[0].starts_with("[RRR"), "{lines:?}");
        assert_eq!(lines.concat().matches('*').count(), 2, "a mixed one and its legend: {lines:?}");
        assert!(lines.last().unwrap().starts_with("one letter per 6 blocks"), "{lines:?}");
    }
}
