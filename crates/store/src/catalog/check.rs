//! Checks of the content of a catalog file before anything is built from it.
//!
//! The checksum only proves that the file has not changed since it was written. Another program may have written it, so
//! indexes in it must be checked against their bounds.

use std::collections::HashSet;

use taut_types::{ColumnIndex, Layout, PARTITIONS_MAX, PUBLIC_SCHEMA, Schema, TableDesign};

use super::format::{CatalogFile, TableFile};
use super::{BlockId, CommentTarget, SequenceId, TableId, TablePartitions, timeline};

/// Checks a catalog file. An error names what was expected.
pub(crate) fn check(file: &CatalogFile<'_>) -> Result<(), String> {
    let mut schemas = HashSet::from([PUBLIC_SCHEMA]);
    if let Some(schema) = file.schemas.iter().map(AsRef::as_ref).find(|name: &&str| !schemas.insert(name)) {
        return Err(format!("each schema once, found {schema:?} twice"));
    }
    let mut names = HashSet::new();
    let mut blocks = HashSet::new();
    let mut tables = HashSet::new();
    for table in &file.tables {
        if !names.insert(table.name.as_ref()) {
            return Err(format!("one table or view named {:?}", table.name));
        }
        if table.id.0 >= file.next_table || !tables.insert(table.id) {
            return Err(format!("another number than {} for table {:?}", table.id.0, table.name));
        }
        check_table(table, file.next_block, &mut blocks)
            .map_err(|expected| format!("table {:?} with {expected}", table.name))?;
    }
    check_sequences(file, &mut names, &mut tables)?;
    let mut functions = HashSet::new();
    if let Some(function) = file.functions.iter().find(|function| !functions.insert(function.name.as_str())) {
        return Err(format!("one function named {:?}", function.name));
    }
    check_references(file)?;
    check_comments(file)?;
    if !timeline::are_ordered(&file.timelines, file.version) {
        return Err(format!("timelines in order, up to version {}", file.version));
    }
    match file.views.iter().find(|view| !names.insert(view.name.as_str())) {
        Some(view) => Err(format!("one table or view named {:?}", view.name)),
        None => Ok(()),
    }
}

/// Checks the sequences, and that each sequence owned by a column exists and has only one owner.
fn check_sequences<'a>(
    file: &'a CatalogFile<'_>,
    names: &mut HashSet<&'a str>,
    numbers: &mut HashSet<TableId>,
) -> Result<(), String> {
    for sequence in &file.sequences {
        if !names.insert(sequence.name.as_str()) {
            return Err(format!("one relation named {:?}", sequence.name));
        }
        if sequence.id.0 >= file.next_table || !numbers.insert(TableId(sequence.id.0)) {
            return Err(format!("another number than {} for sequence {:?}", sequence.id.0, sequence.name));
        }
        sequence.check()?;
    }
    let mut unowned: HashSet<SequenceId> = file.sequences.iter().map(|sequence| sequence.id).collect();
    let mut owned = file.tables.iter().flat_map(|table| table.constraints.sequences.values());
    match owned.find(|owned| !unowned.remove(&owned.sequence)) {
        Some(owned) => Err(format!("a sequence with number {} that belongs to one column", owned.sequence.0)),
        None => Ok(()),
    }
}

/// Checks that the comments are on objects that exist.
fn check_comments(file: &CatalogFile<'_>) -> Result<(), String> {
    let table_of = |id: &TableId| file.tables.iter().find(|table| table.id == *id);
    let exists = |on: &CommentTarget| match on {
        CommentTarget::Table(table) => table_of(table).is_some(),
        CommentTarget::Column(table, column) => {
            table_of(table).is_some_and(|table| column.index() < table.schema.len())
        }
        CommentTarget::View(view) | CommentTarget::ViewColumn(view, _) => {
            file.views.iter().any(|other| other.name == *view)
        }
        CommentTarget::Sequence(sequence) => file.sequences.iter().any(|other| other.id == *sequence),
        CommentTarget::Schema(schema) => schema == PUBLIC_SCHEMA || file.schemas.iter().any(|other| other == schema),
        CommentTarget::Function(function) => file.functions.iter().any(|other| other.name == *function),
    };
    match file.comments.iter().find(|(on, _)| !exists(on)) {
        Some((on, _)) => Err(format!("every comment to be on an object that exists, found {on:?}")),
        None => Ok(()),
    }
}

/// Checks that each foreign key references a key that exists, and that each table lists in `referenced_by` exactly the
/// tables with foreign keys to it.
fn check_references(file: &CatalogFile<'_>) -> Result<(), String> {
    for table in &file.tables {
        for key in &table.constraints.foreign_keys {
            let parent = file.tables.iter().find(|parent| parent.id == key.table);
            let is_known = parent.is_some_and(|parent| {
                parent.constraints.referenced_by.contains(&table.id)
                    && key.references(&table.schema, &parent.schema, &parent.constraints)
            });
            if !is_known {
                return Err(format!("a key that foreign key {:?} of table {:?} references", key.name, table.name));
            }
        }
        for child in &table.constraints.referenced_by {
            let child = file.tables.iter().find(|other| other.id == *child);
            let references =
                child.is_some_and(|child| child.constraints.foreign_keys.iter().any(|key| key.table == table.id));
            if !references {
                return Err(format!("foreign keys of all tables that reference table {:?}", table.name));
            }
        }
    }
    Ok(())
}

fn check_table(table: &TableFile<'_>, next_block: u64, seen: &mut HashSet<BlockId>) -> Result<(), String> {
    Schema::new(table.schema.columns().to_vec()).map_err(|error| format!("a schema: {error}"))?;
    check_design(&table.design, &table.schema)?;
    table.constraints.check_against_schema(&table.schema)?;
    if table.statistics.len() != table.schema.len() {
        return Err(format!("statistics of {} columns, found {}", table.schema.len(), table.statistics.len()));
    }
    let (mut rows, mut bytes) = (0_u64, 0_u64);
    for block in &table.blocks {
        if block.id.0 >= next_block || !seen.insert(block.id) {
            return Err(format!("another number than {} for a block", block.id));
        }
        if block.header_bytes > block.file_bytes {
            return Err(format!("a header of block {} that fits its file", block.id));
        }
        if block.segments > block.rows {
            return Err(format!("at most a segment a row in block {}", block.id));
        }
        let sums = rows.checked_add(block.rows).zip(bytes.checked_add(block.file_bytes.max(block.plain_bytes)));
        (rows, bytes) = sums.ok_or_else(|| "fewer rows and bytes".to_owned())?;
    }
    if let Some(column) = table.statistics.iter().find(|column| column.rows != rows || column.nulls > rows) {
        return Err(format!("statistics of {rows} rows, found {} rows and {} nulls", column.rows, column.nulls));
    }
    let is_ascending = table.runs.windows(2).all(|pair| pair[0] < pair[1]);
    let starts_at_zero = table.runs.first().is_none_or(|first| *first == 0);
    let inside = table.runs.last().is_none_or(|last| *last < table.blocks.len());
    if !is_ascending || !starts_at_zero || !inside || table.runs.is_empty() != table.blocks.is_empty() {
        return Err(format!("runs that cover its {} blocks", table.blocks.len()));
    }
    for map in &table.column_maps {
        map.check(&table.schema).map_err(|expected| format!("maps of its columns, with {expected}"))?;
    }
    let maps = table.column_maps.len();
    let expected = if maps == 0 { 0 } else { table.blocks.len() };
    if table.map_of_blocks.len() != expected || table.map_of_blocks.iter().flatten().any(|index| *index >= maps) {
        return Err(format!(
            "one of its {maps} maps of columns, or none, for each of its {} blocks",
            table.blocks.len()
        ));
    }
    table.partitions.as_ref().map_or(Ok(()), |partitions| check_partitions(table, partitions))
}

/// Checks that partitions match the design, and that each block has a valid partition or none.
fn check_partitions(table: &TableFile<'_>, partitions: &TablePartitions) -> Result<(), String> {
    let design = partitions.partitioning.design();
    if table.design.partition_by != Some(design) {
        return Err("the partitions of its design".to_owned());
    }
    partitions.partitioning.check(table.schema.column(design.column).logical_type)?;
    let nulls = partitions.partitioning.null_partition();
    if partitions.of_blocks.len() != table.blocks.len()
        || partitions.of_blocks.iter().flatten().any(|partition| *partition > nulls)
    {
        return Err(format!("a partition up to {nulls} for each of its {} blocks", table.blocks.len()));
    }
    Ok(())
}

/// Checks that a design names only existing columns, and that its groups name each column once. Also checks that its
/// indexes have distinct names and a valid number of columns. An error names what was expected.
pub(crate) fn check_design(design: &TableDesign, schema: &Schema) -> Result<(), String> {
    let inside = |column: &ColumnIndex| column.index() < schema.len();
    if !design.sort_by.iter().all(|sort| inside(&sort.column)) || !design.encodings.keys().all(inside) {
        return Err("a design of its own columns".to_owned());
    }
    if let Some(partition_by) = design.partition_by
        && !(inside(&partition_by.column) && (1..=PARTITIONS_MAX).contains(&partition_by.count))
    {
        return Err(format!("1 to {PARTITIONS_MAX} partitions by one of its own columns"));
    }
    for (position, index) in design.indexes.iter().enumerate() {
        let mut columns = index.columns.clone();
        columns.sort_unstable();
        columns.dedup();
        let is_distinct = columns.len() == index.columns.len() && columns.iter().all(inside);
        if !is_distinct || !(1..=index.kind.columns_max()).contains(&columns.len()) {
            let columns_max = index.kind.columns_max();
            return Err(format!("1 to {columns_max} distinct existing columns in index {:?}", index.name));
        }
        if design.indexes[..position].iter().any(|other| other.name == index.name) {
            return Err(format!("one index named {:?}", index.name));
        }
    }
    design.check_abstraction().map_err(|_| "no more levels than sort columns".to_owned())?;
    if let Layout::Groups(groups) = &design.layout {
        let mut columns: Vec<usize> = groups.iter().flatten().map(|column| column.index()).collect();
        columns.sort_unstable();
        if !columns.into_iter().eq(0..schema.len()) || groups.iter().any(Vec::is_empty) {
            return Err("groups that name each column once".to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use taut_types::{Column, ColumnStatistics, LogicalType};

    /// Applies `change` to the JSON of a valid catalog file, and checks the result.
    fn file(change: impl FnOnce(&mut serde_json::Value)) -> Result<(), String> {
        let schema = Schema::new(vec![Column::new("a", LogicalType::Date, true)]).unwrap();
        let statistics = vec![ColumnStatistics { rows: 5, ..ColumnStatistics::empty() }];
        let mut value = serde_json::json!({
            "database": 1, "version": 2, "next_block": 3, "next_table": 2,
            "tables": [{
                "id": 1, "name": "t", "schema": schema, "design": TableDesign::default(), "statistics": statistics,
                "runs": [0, 1], "blocks": [[1, 128, 64, 0, 3, 24, 1, "column"], [2, 128, 64, 0, 2, 24, 1, "row"]],
            }],
            "views": [{"name": "v", "sql": ""}],
        });
        change(&mut value);
        check(&serde_json::from_value(value).unwrap())
    }

    #[test]
    fn inconsistent_catalogs_are_rejected() {
        assert_eq!(file(|_| ()), Ok(()));
        let set = |pointer: &'static str, to: serde_json::Value| {
            let result = file(|value| *value.pointer_mut(pointer).unwrap() = to);
            result.expect_err(pointer)
        };
        use serde_json::json;
        assert!(set("/next_table", json!(1)).contains("another number than 1 for table"));
        assert!(set("/next_block", json!(2)).contains("for a block"));
        assert!(set("/tables/0/name", json!("v")).contains("one table or view named"));
        assert!(set("/tables/0/schema", json!([])).contains("at least one column"));
        assert!(set("/tables/0/statistics", json!([])).contains("statistics of 1 columns"));
        assert!(set("/tables/0/blocks/0/0", json!(2)).contains("for a block"));
        assert!(set("/tables/0/blocks/0/2", json!(129)).contains("fits its file"));
        assert!(set("/tables/0/blocks/0/4", json!(4)).contains("statistics of 6 rows"));
        assert!(set("/tables/0/blocks/0/4", json!(u64::MAX)).contains("fewer rows"));
        assert!(set("/tables/0/blocks/0/6", json!(4)).contains("a segment a row"));
        assert!(set("/tables/0/runs", json!([])).contains("runs that cover"));
        assert!(set("/tables/0/runs", json!([1])).contains("runs that cover"));
        assert!(set("/tables/0/runs", json!([0, 2])).contains("runs that cover"));
        assert!(set("/tables/0/runs", json!([0, 0])).contains("runs that cover"));
        assert!(set("/tables/0/design/layout", json!({"groups": [[0, 0]]})).contains("each column once"));
        assert!(set("/tables/0/design/layout", json!({"groups": [[1]]})).contains("each column once"));
        assert!(set("/tables/0/design/encodings", json!({"1": "plain"})).contains("its own columns"));
        // A design from before abstraction levels existed has no such field.
        assert!(serde_json::to_value(TableDesign::default()).unwrap().get("abstraction").is_none());
        for (abstraction, is_good) in
            [(json!("by_layout"), true), (json!({"levels": 0}), true), (json!({"levels": 1}), false)]
        {
            let result = file(|value| value["tables"][0]["design"]["abstraction"] = abstraction);
            assert_eq!(result.is_ok(), is_good, "{result:?}");
        }
        let partitions = |change: fn(&mut serde_json::Value)| {
            file(|value| {
                let by = json!({"method": "range", "column": 0, "count": 3});
                let table = &mut value["tables"][0];
                table["design"]["partition_by"] = by.clone();
                let partitioning = json!({"design": by, "boundaries": [{"number": -5}, {"number": 7}]});
                table["partitions"] = json!({"partitioning": partitioning, "of_blocks": [3, null]});
                change(table);
            })
        };
        assert_eq!(partitions(|_| ()), Ok(()));
        for (change, message) in [
            (
                (|table| table["design"]["partition_by"]["count"] = json!(4)) as fn(&mut serde_json::Value),
                "of its design",
            ),
            (|table| table["design"]["partition_by"]["count"] = json!(0), "1 to 1024 partitions"),
            (|table| table["design"]["partition_by"]["column"] = json!(1), "one of its own columns"),
            (|table| drop(table["design"].as_object_mut().unwrap().remove("partition_by")), "of its design"),
            (
                |table| table["partitions"]["partitioning"]["boundaries"][1] = json!({"number": -5}),
                "ascending boundaries",
            ),
            (
                |table| table["partitions"]["partitioning"]["boundaries"][1] = json!({"bytes": [7]}),
                "ascending boundaries",
            ),
            (|table| table["partitions"]["of_blocks"] = json!([0]), "each of its 2 blocks"),
            (|table| table["partitions"]["of_blocks"] = json!([0, 4]), "each of its 2 blocks"),
        ] {
            let found = partitions(change).unwrap_err();
            assert!(found.contains(message), "{found}");
        }
        let maps = |maps: serde_json::Value, of_blocks: serde_json::Value| {
            file(|value| {
                value["tables"][0]["column_maps"] = maps;
                value["tables"][0]["map_of_blocks"] = of_blocks;
            })
        };
        let added = |day: i64| json!([[{"added": {"type": "date", "value": {"number": day}}}]]);
        assert_eq!(maps(added(5), json!([0, null])), Ok(()));
        for (column_maps, of_blocks, message) in [
            (added(5), json!([]), "maps of columns, or none, for each"),
            (added(5), json!([0, 1]), "maps of columns, or none, for each"),
            (json!([]), json!([null, null]), "maps of columns, or none, for each"),
            (added(1 << 40), json!([0, null]), "values that fit the types of added columns"),
            (json!([[{"stored": 0}, {"stored": 1}]]), json!([0, null]), "a source for each column"),
            (
                json!([[{"added": {"type": "big_int"}}]]),
                json!([0, null]),
                "added columns of the types that the table declares",
            ),
        ] {
            let found = maps(column_maps, of_blocks).unwrap_err();
            assert!(found.contains(message), "{found}");
        }
        let index = |columns: &[u32]| {
            let index = json!([{"name": "i", "kind": "csb", "columns": columns}]);
            file(|value| value["tables"][0]["design"]["indexes"] = index)
        };
        assert_eq!(index(&[0]), Ok(()));
        for columns in [&[][..], &[1], &[0, 0]] {
            assert!(index(columns).unwrap_err().contains("columns in index \"i\""), "{columns:?}");
        }
    }
}
