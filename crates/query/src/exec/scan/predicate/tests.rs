//! Translation of DataFusion's expressions to predicates of storage.

use super::*;
use datafusion::arrow::array::{Float64Array, Int32Array, Int64Array, StringViewArray, StructArray};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::Field;
use datafusion::common::DFSchema;
use datafusion::prelude::*;
use taut_types::Column as TautColumn;

fn schema() -> Schema {
    Schema::new(vec![
        TautColumn::new("i", LogicalType::Integer, true),
        TautColumn::new("t", LogicalType::Varchar, true),
        TautColumn::new("d", LogicalType::Decimal { precision: 15, scale: 2 }, true),
        TautColumn::new("b", LogicalType::Boolean, true),
        TautColumn::new("f", LogicalType::Double, true),
    ])
    .unwrap()
}

fn predicate(expression: Expr) -> Predicate {
    let schema = schema();
    let arrow = schema.arrow();
    let context = SessionContext::new();
    let planned =
        context.create_physical_expr(expression, &DFSchema::try_from(arrow.as_ref().clone()).unwrap()).unwrap();
    super::translate(&[planned], &schema, &arrow, None).unwrap()
}

#[test]
fn comparisons_lists_prefixes_and_nulls_become_column_predicates() {
    let greater = DatumPredicate::Range { low: (1 << 40) + 1, high: i128::MAX };
    let cases: Vec<(Expr, DatumPredicate, bool)> = vec![
        (col("i").lt(lit(5)), DatumPredicate::Range { low: i128::MIN, high: 4 }, false),
        (lit(5).lt(col("i")), DatumPredicate::Range { low: 6, high: i128::MAX }, false),
        (col("i").not_eq(lit(5)), DatumPredicate::Range { low: 5, high: 5 }, true),
        (col("i").in_list(vec![lit(3), lit(1)], true), DatumPredicate::OneOf(Arc::from([1, 3])), true),
        (
            col("t").eq(lit(ScalarValue::Utf8View(Some("x".to_owned())))),
            DatumPredicate::BytesOneOf(Arc::from([Box::from(*b"x")])),
            false,
        ),
        (
            col("t").like(lit(ScalarValue::Utf8View(Some("ab%".to_owned())))),
            DatumPredicate::BytesRange {
                low: Bound::Included((*b"ab").into()),
                high: Bound::Excluded((*b"ac").into()),
            },
            false,
        ),
        // Comparisons as wider integers, with a value that the column's type cannot hold.
        (datafusion::logical_expr::cast(col("i"), DataType::Int64).gt(lit(1_i64 << 40)), greater.clone(), false),
        (lit(1_i64 << 40).lt(datafusion::logical_expr::cast(col("i"), DataType::Int64)), greater, false),
        (
            datafusion::logical_expr::cast(col("i"), DataType::Int64)
                .in_list(vec![lit(1_i64 << 40), lit(3_i64)], false),
            DatumPredicate::OneOf(Arc::from([3, 1 << 40])),
            false,
        ),
        (col("t").is_null(), DatumPredicate::Null, false),
        (col("t").is_not_null(), DatumPredicate::Null, true),
        (col("b"), DatumPredicate::Range { low: 1, high: 1 }, false),
        (!col("b"), DatumPredicate::Range { low: 1, high: 1 }, true),
    ];
    for (expression, conjunct, negated) in cases {
        let predicate = predicate(expression.clone());
        assert!(predicate.row_predicates.is_empty(), "{expression}");
        assert_eq!(predicate.column_predicates.len(), 1, "{expression}");
        assert_eq!(
            (&predicate.column_predicates[0].condition, predicate.column_predicates[0].negated),
            (&conjunct, negated)
        );
    }
}

#[test]
fn bounds_and_lists_of_one_column_become_one_predicate() {
    let text = |text: &str| lit(ScalarValue::Utf8View(Some(text.to_owned())));
    let never = DatumPredicate::BytesOneOf(Arc::from([]));
    let cases = [
        (col("i").between(lit(3), lit(8)), vec![(DatumPredicate::Range { low: 3, high: 8 }, false)]),
        (col("i").gt(lit(5)).and(col("i").lt(lit(2))), vec![(DatumPredicate::Range { low: 6, high: 1 }, false)]),
        (
            col("i").gt(lit(4)).and(col("i").in_list(vec![lit(1), lit(5), lit(9)], false)).and(col("i").lt(lit(9))),
            vec![(DatumPredicate::OneOf(Arc::from([5])), false)],
        ),
        (
            col("i").gt(lit(4)).and(col("i").not_eq(lit(7))).and(col("i").is_not_null()).and(col("i").lt(lit(9))),
            vec![
                (DatumPredicate::Range { low: 5, high: 8 }, false),
                (DatumPredicate::Range { low: 7, high: 7 }, true),
                (DatumPredicate::Null, true),
            ],
        ),
        (
            col("i").is_null().and(col("i").gt(lit(2))),
            vec![(DatumPredicate::Null, false), (DatumPredicate::Range { low: 3, high: i128::MAX }, false)],
        ),
        (
            col("t").gt_eq(text("b")).and(col("t").lt(text("d"))).and(col("t").gt(text("b"))),
            vec![(
                DatumPredicate::BytesRange {
                    low: Bound::Excluded((*b"b").into()),
                    high: Bound::Excluded((*b"d").into()),
                },
                false,
            )],
        ),
        (col("t").gt_eq(text("b")).and(col("t").lt(text("b"))), vec![(never.clone(), false)]),
        (col("t").gt_eq(text("c")).and(col("t").lt_eq(text("b"))), vec![(never, false)]),
        (
            col("t").gt_eq(text("b")).and(col("t").lt_eq(text("b"))),
            vec![(
                DatumPredicate::BytesRange {
                    low: Bound::Included((*b"b").into()),
                    high: Bound::Included((*b"b").into()),
                },
                false,
            )],
        ),
        (
            col("t").in_list(vec![text("a"), text("c")], false).and(col("t").like(text("c%"))),
            vec![(DatumPredicate::BytesOneOf(Arc::from([Box::from(*b"c")])), false)],
        ),
    ];
    for (expression, expected) in cases {
        let found = predicate(expression.clone());
        let conjuncts: Vec<_> =
            found.column_predicates.into_iter().map(|conjunct| (conjunct.condition, conjunct.negated)).collect();
        assert!(found.row_predicates.is_empty() && conjuncts == expected, "{expression}: {conjuncts:?}");
    }
}

#[test]
fn casts_that_change_values_become_row_predicates() {
    for expression in [
        datafusion::logical_expr::cast(col("i"), DataType::Int16).eq(lit(5_i16)),
        datafusion::logical_expr::cast(col("i"), DataType::Float64).gt(lit(1.5)),
        datafusion::logical_expr::cast(col("d"), DataType::Int64).gt(lit(5_i64)),
        datafusion::logical_expr::cast(col("b"), DataType::Int64).eq(lit(1_i64)),
    ] {
        let predicate = predicate(expression.clone());
        assert!(predicate.column_predicates.is_empty() && predicate.row_predicates.len() == 1, "{expression}");
    }
}

#[test]
fn other_conditions_become_row_predicates_with_implied_bounds() {
    let either = col("i").eq(lit(3)).and(col("t").eq(lit("x"))).or(col("i").eq(lit(9)));
    let bounded = predicate(either);
    assert_eq!(
        bounded.column_predicates,
        [ColumnPredicate::new(ColumnIndex(0), DatumPredicate::OneOf(Arc::from([3, 9])))]
    );
    assert_eq!(bounded.row_predicates.len(), 1);
    assert_eq!(bounded.row_predicates[0].columns(), [ColumnIndex(0), ColumnIndex(1)]);
}

/// The arms occur in the dynamic filter `CASE hash % n WHEN 0 THEN .. WHEN 1 THEN .. END`.
#[test]
fn the_arms_of_a_partitioned_join_are_united() {
    let text = |text: &str| lit(ScalarValue::Utf8View(Some(text.to_owned())));
    let arm = |numbers: [i32; 4], word: &str| {
        let listed = col("i").in_list(numbers.map(lit).to_vec(), false);
        col("i").gt_eq(lit(2)).and(listed).and(col("t").in_list(vec![text(word), text("other")], false))
    };
    let modulo = || col("i") % lit(2);
    let mut case = when(modulo().eq(lit(0)), arm([1, 2, 8, 9], "x")).when(modulo().eq(lit(1)), arm([3, 8, 5, 7], "y"));
    let united = predicate(case.otherwise(lit(false)).unwrap());
    let words = ["other", "x", "y"].map(|word| Box::from(word.as_bytes()));
    assert_eq!(
        united.column_predicates,
        [
            ColumnPredicate::new(ColumnIndex(0), DatumPredicate::OneOf(Arc::from([2, 3, 5, 7, 8, 9]))),
            ColumnPredicate::new(ColumnIndex(1), DatumPredicate::BytesOneOf(Arc::from(words))),
        ]
    );
    assert_eq!(united.row_predicates.len(), 1);
}

/// `struct(columns) IN (structs)`, as a join on these columns pushes it down.
fn structs_in(columns: Vec<Expr>, fields: Vec<ArrayRef>, present: Option<Vec<bool>>, negated: bool) -> InListExpr {
    let arrow = schema().arrow();
    let call = datafusion::functions::core::expr_fn::r#struct(columns);
    let context = SessionContext::new();
    let call = context.create_physical_expr(call, &DFSchema::try_from(arrow.as_ref().clone()).unwrap()).unwrap();
    let names = fields.iter().enumerate();
    let names = names.map(|(index, field)| Field::new(format!("c{index}"), field.data_type().clone(), true));
    let structs = StructArray::new(names.collect::<Vec<_>>().into(), fields, present.map(NullBuffer::from));
    InListExpr::try_new_from_array(call, Arc::new(structs), negated, &arrow).unwrap()
}

fn translate(expression: impl PhysicalExpr) -> Predicate {
    let schema = schema();
    super::translate(&[Arc::new(expression)], &schema, &schema.arrow(), None).unwrap()
}

#[test]
fn structs_of_a_join_imply_a_list_for_each_column() {
    let conjuncts = |columns: Vec<Expr>, words: Vec<Option<&str>>, present, negated| {
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![7, 3, 7]));
        let fields = match columns.len() {
            2 => vec![numbers, Arc::new(StringViewArray::from(words)) as ArrayRef],
            _ => vec![Arc::clone(&numbers), Arc::new(StringViewArray::from(words)), numbers],
        };
        let predicate = translate(structs_in(columns, fields, present, negated));
        assert_eq!(predicate.row_predicates.len(), 1);
        predicate.column_predicates
    };
    let both = || vec![col("i"), col("t")];
    let listed = |numbers: &[i128]| ColumnPredicate::new(ColumnIndex(0), DatumPredicate::OneOf(Arc::from(numbers)));
    let words = ["a", "b"].map(|word| Box::from(word.as_bytes()));
    let texts = ColumnPredicate::new(ColumnIndex(1), DatumPredicate::BytesOneOf(Arc::from(words)));
    let some = || vec![Some("b"), Some("a"), Some("b")];
    assert_eq!(conjuncts(both(), some(), None, false), [listed(&[3, 7]), texts.clone()]);
    assert_eq!(conjuncts(vec![col("i"), col("t"), col("i")], some(), None, false), [listed(&[3, 7]), texts]);
    assert_eq!(conjuncts(both(), some(), None, true), []);
    // A join in which null equals null also lets null pass, so a column with a null in the list gets no predicate.
    assert_eq!(conjuncts(both(), vec![Some("b"), None, Some("b")], None, false), [listed(&[3, 7])]);
    assert_eq!(conjuncts(both(), vec![None; 3], Some(vec![false, true, false]), false), [listed(&[3])]);
    // As wider integers, with a value that the column's type cannot hold.
    let wide = datafusion::logical_expr::cast(col("i"), DataType::Int64);
    let fields: Vec<ArrayRef> =
        vec![Arc::new(Int64Array::from(vec![1 << 40, 5])), Arc::new(StringViewArray::from(vec![None, Some("x")]))];
    let predicate = translate(structs_in(vec![wide, col("t")], fields, None, false));
    assert_eq!(predicate.column_predicates, [listed(&[5, 1 << 40])]);
}

/// The join checks the rows again, so its dynamic filter need not be exact.
#[test]
fn join_filters_on_floating_point_become_only_column_predicates() {
    let list = || {
        let fields: Vec<ArrayRef> = vec![Arc::new(Float64Array::from(vec![0.0])), Arc::new(Int32Array::from(vec![7]))];
        structs_in(vec![col("f"), col("i")], fields, None, false)
    };
    // -1 and 0 are the datums of -0.0 and 0.0.
    let zeros = ColumnPredicate::new(ColumnIndex(4), DatumPredicate::OneOf(Arc::from([-1, 0])));
    let seven = ColumnPredicate::new(ColumnIndex(0), DatumPredicate::OneOf(Arc::from([7])));
    let written = translate(list());
    assert_eq!((written.column_predicates.as_slice(), written.row_predicates.len()), ([seven, zeros].as_slice(), 1));
    let join_filter = translate(DynamicFilterPhysicalExpr::new(vec![], Arc::new(list())));
    assert_eq!((join_filter.column_predicates, join_filter.row_predicates.len()), (written.column_predicates, 0));
    // The filter of a sort with nulls first has a predicate for rows without nulls, for any type.
    let nulls_or_greater = col("f").is_null().or(col("f").gt(lit(1.5)));
    let arrow = schema().arrow();
    let nulls_or_greater = SessionContext::new()
        .create_physical_expr(nulls_or_greater, &DFSchema::try_from(arrow.as_ref().clone()).unwrap())
        .unwrap();
    let sort_filter = translate(DynamicFilterPhysicalExpr::new(vec![], nulls_or_greater));
    assert!(sort_filter.row_predicates[0].non_null_predicate().is_some());
    // A join filter without floating point also becomes a row predicate.
    let fields: Vec<ArrayRef> = vec![Arc::new(StringViewArray::from(vec!["x"])), Arc::new(Int32Array::from(vec![7]))];
    let list = structs_in(vec![col("t"), col("i")], fields, None, false);
    assert_eq!(translate(DynamicFilterPhysicalExpr::new(vec![], Arc::new(list))).row_predicates.len(), 1);
}

#[test]
fn disjunctions_with_is_null_have_a_non_null_predicate() {
    let non_null_of = |expression: Expr| {
        let predicate = predicate(expression);
        assert!(predicate.column_predicates.is_empty() && predicate.row_predicates.len() == 1, "{predicate:?}");
        predicate.row_predicates[0].non_null_predicate().cloned()
    };
    let non_null_predicate = |column, conjunct, is_exact| {
        Some(NonNullPredicate { predicate: ColumnPredicate::new(ColumnIndex(column), conjunct), is_exact })
    };
    let greater = DatumPredicate::Range { low: 6, high: i128::MAX };
    assert_eq!(non_null_of(col("i").is_null().or(col("i").gt(lit(5)))), non_null_predicate(0, greater.clone(), true));
    assert_eq!(non_null_of(col("i").gt(lit(5)).or(col("i").is_null())), non_null_predicate(0, greater, true));
    let equal = col("i").eq(lit(5)).and(col("t").is_null().or(col("t").gt(lit("x"))));
    let two = col("i").is_null().or(col("i").gt(lit(5))).or(equal);
    assert_eq!(non_null_of(two), non_null_predicate(0, DatumPredicate::Range { low: 5, high: i128::MAX }, false));
    // The other arm is about another column, so it implies nothing about `i`.
    assert_eq!(non_null_of(col("i").is_null().or(col("t").gt(lit("x")))), None);
    assert_eq!(non_null_of(col("i").is_null().or(col("i").gt(lit(5))).or(col("b"))), None);
}
