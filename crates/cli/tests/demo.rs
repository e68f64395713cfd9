//! The command `taut demo` at scale 0.01.

mod common;

use common::{csv, scratch, taut};

#[test]
fn the_demo_compares_layouts_and_runs_all_queries() {
    let (_directory, database) = scratch();
    let output = taut(&["demo", "--scale", "0.01", "--directory", &database]).succeeds();
    for part in
        ["row", "packed_row", "column", "groups", "Q1: ", "Q6: ", "100 orders by key", "count(*)", "stored", "loaded"]
    {
        assert!(output.contains(part), "{part}: {output}");
    }
    let comparison: Vec<_> = output.lines().skip_while(|line| !line.contains("* wins")).take(12).collect();
    let measured: Vec<_> = comparison.iter().filter(|line| line.contains(" | ") && line.contains('*')).collect();
    // Five items of the workload, the stored sizes and the load times.
    assert_eq!(measured.len(), 7, "a winner in each row: {comparison:#?}");
    for number in 1..=22 {
        assert!(output.contains(&format!("\n Q{number} ")), "Q{number}: {output}");
    }
    assert!(output.contains(&format!("taut sql {database}")), "{output}");
    let counts = "select count(*) as n from lineitem union all select count(*) from lineitem_row \
                  union all select count(*) from lineitem_packed_row union all select count(*) from lineitem_groups";
    assert_eq!(csv(&database, counts), "n\n60175\n60175\n60175\n60175\n");
    assert!(taut(&["demo", "--scale", "0.01", "--directory", &database]).fails().contains("tables already"));
}
