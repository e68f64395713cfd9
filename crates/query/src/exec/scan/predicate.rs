//! Translation of DataFusion's expressions to predicates that storage evaluates.
//!
//! A conjunct on one column that is a comparison, range, list, prefix or null check becomes a [`ColumnPredicate`],
//! which blocks evaluate on encoded data. Any other conjunct becomes a [`RowPredicate`] that evaluates the expression
//! itself on decoded columns. Both are exact. Some expressions only imply bounds or a list of values of a column.
//! Examples are a disjunction, the arms of a partitioned join filter, and the structs of a join on several columns. The
//! bounds or the list become an additional column predicate for indexes, zone maps and partitions.
//!
//! The dynamic filter of a join need not be exact, because the join checks the rows again. If the keys of the join are
//! integers, scans check a bitmap of them instead of the join's hash table. DataFusion's filter compares floating point
//! bit by bit, but in SQL the two zeros are one number. Therefore, of a join's filter on floating point, scans use only
//! the parts that become column predicates. The filter of a sort needs no such exception: the sort itself also compares
//! bit by bit.
//!
//! A sort with nulls first pushes down `c IS NULL OR ...`. This becomes a row predicate, with a column predicate for
//! rows in which `c` is not null.

mod implied;

use std::ops::{Bound, RangeInclusive};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, BooleanArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Schema as ArrowSchema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, DynamicFilterPhysicalExpr, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr,
    Literal, NotExpr,
};
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::PhysicalExpr;
use datafusion::physical_plan::joins::HashTableLookupExpr;
use taut_types::{
    ColumnIndex, ColumnPredicate, Datum, DatumPredicate, LogicalType, NonNullPredicate, Predicate, RowPredicate,
    Schema, datum_at, equal_numbers,
};

pub(super) use self::implied::implies;
use self::implied::{implied_predicates, intersection, non_null_predicate};
use crate::exec::operators::{BuildKeys, JoinKeys, KeySet};

/// Translates expressions over the columns of a table to one predicate, their conjunction.
///
/// Dynamic filters are translated in their current state. The filter of a hash join is replaced by bitmaps of its keys,
/// if there are any.
///
/// # Errors
/// If an expression names a column that the table does not have, which is a bug of the planner.
pub fn translate(
    expressions: &[Arc<dyn PhysicalExpr>],
    schema: &Schema,
    arrow: &SchemaRef,
    join_keys: Option<&JoinKeys>,
) -> Result<Predicate> {
    let mut translation =
        Translation { schema, arrow, join_keys, predicate: Predicate::default(), key_predicates: Vec::new() };
    for expression in expressions {
        translation.add_condition(expression, &ConditionSource::Statement)?;
    }
    Ok(translation.finish())
}

/// Source of a condition.
enum ConditionSource {
    /// The statement itself, or a sort or aggregation that compares with a row that it holds.
    Statement,
    /// A join, which checks the rows again, with the keys of its build side if they are known.
    Join(Option<Arc<BuildKeys>>),
}

struct Translation<'a> {
    schema: &'a Schema,
    arrow: &'a SchemaRef,
    join_keys: Option<&'a JoinKeys>,
    predicate: Predicate,
    key_predicates: Vec<KeyPredicate>,
}

impl Translation<'_> {
    /// Returns the predicate. Bitmaps of keys come before other row predicates, because they are fast and cannot fail.
    /// The bitmaps with the lowest density come first.
    fn finish(self) -> Predicate {
        let Self { mut predicate, mut key_predicates, .. } = self;
        key_predicates.sort_by(|one, other| one.keys.density().total_cmp(&other.keys.density()));
        let key_predicates = key_predicates.into_iter().map(|conjunct| Arc::new(conjunct) as Arc<dyn RowPredicate>);
        predicate.row_predicates.splice(0..0, key_predicates);
        predicate
    }

    fn add_condition(&mut self, expression: &Arc<dyn PhysicalExpr>, source: &ConditionSource) -> Result<()> {
        if let Some(dynamic) = expression.downcast_ref::<DynamicFilterPhysicalExpr>() {
            let current = dynamic.current()?;
            let source = match comes_from_join(&current)? {
                true => ConditionSource::Join(self.join_keys.and_then(|keys| keys.get(dynamic))),
                false => ConditionSource::Statement,
            };
            return self.add_condition(&current, &source);
        }
        if let Some(with_values) = with_subquery_values(expression)? {
            return self.add_condition(&with_values, source);
        }
        if let Some(binary) = expression.downcast_ref::<BinaryExpr>()
            && *binary.op() == Operator::And
        {
            self.add_condition(binary.left(), source)?;
            return self.add_condition(binary.right(), source);
        }
        if let Some(literal) = expression.downcast_ref::<Literal>()
            && *literal.value() == ScalarValue::Boolean(Some(true))
        {
            return Ok(());
        }
        if let Some(conjunct) = column_predicate(expression, self.schema) {
            add_predicate(&mut self.predicate.column_predicates, conjunct);
            return Ok(());
        }
        for (column, conjunct) in implied_predicates(expression, self.schema) {
            add_predicate(&mut self.predicate.column_predicates, ColumnPredicate::new(column, conjunct));
        }
        if let ConditionSource::Join(keys) = source {
            let are_covered = keys.as_ref().map(|keys| self.add_keys(expression, keys)).transpose()?;
            if are_covered == Some(true) || compares_floating_point(expression, self.arrow)? {
                return Ok(());
            }
        }
        let conjunct = ExpressionPredicate {
            non_null_predicate: non_null_predicate(expression, self.schema),
            ..ExpressionPredicate::new(expression, self.arrow)?
        };
        self.predicate.row_predicates.push(Arc::new(conjunct));
        Ok(())
    }

    /// Adds the bitmaps of a join's keys, if an expression looks columns up in the join's hash table. There may be one
    /// such table per partition of the join. Returns whether the bitmaps are equivalent to the expression.
    fn add_keys(&mut self, expression: &Arc<dyn PhysicalExpr>, keys: &Arc<BuildKeys>) -> Result<bool> {
        let mut columns = None;
        expression.apply(|node| {
            let Some(lookup) = node.downcast_ref::<HashTableLookupExpr>() else {
                return Ok(TreeNodeRecursion::Continue);
            };
            columns =
                Some(lookup.children().into_iter().map(|key| compared_column(key, self.schema)).collect::<Vec<_>>());
            Ok(TreeNodeRecursion::Stop)
        })?;
        let Some(columns) = columns.filter(|columns| columns.len() == keys.len()) else { return Ok(false) };
        let is_only = columns.len() == 1;
        let mut is_covered = true;
        for (column, set) in columns.into_iter().zip(keys.iter()) {
            match (column, set) {
                (Some((column, _)), Some(set)) => {
                    if set.density() < CHECKED_DENSITY_MAX {
                        self.key_predicates.push(KeyPredicate { columns: [column], keys: Arc::clone(set) });
                    }
                }
                _ => is_covered = false,
            }
        }
        Ok(is_covered && is_only)
    }
}

/// Replaces scalar subqueries whose values are known, and expressions over them alone, by constants. `None` if there
/// are none, as when a query is planned.
fn with_subquery_values(expression: &Arc<dyn PhysicalExpr>) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    if !expression.exists(|node| Ok(node.is::<ScalarSubqueryExpr>()))? {
        return Ok(None);
    }
    let row = RecordBatch::try_new_with_options(
        Arc::new(ArrowSchema::empty()),
        Vec::new(),
        &RecordBatchOptions::new().with_row_count(Some(1)),
    )?;
    let replaced = Arc::clone(expression).transform_up(|node| {
        let operands = node.children();
        let is_computed = node.is::<ScalarSubqueryExpr>()
            || !operands.is_empty()
                && operands.iter().all(|operand| operand.is::<Literal>())
                && !node.is_volatile_node();
        // An expression that fails stays: it is an error only if it is evaluated for a row.
        let value = if is_computed { node.evaluate(&row).ok() } else { None };
        Ok(match value {
            Some(ColumnarValue::Scalar(value)) => Transformed::yes(Arc::new(Literal::new(value)) as _),
            Some(ColumnarValue::Array(values)) => {
                Transformed::yes(Arc::new(Literal::new(ScalarValue::try_from_array(&values, 0)?)) as _)
            }
            None => Transformed::no(node),
        })
    })?;
    // A subquery without a value remains, and its condition is checked row by row.
    let is_complete = !replaced.data.exists(|node| Ok(node.is::<ScalarSubqueryExpr>()))?;
    Ok((replaced.transformed && is_complete).then_some(replaced.data))
}

/// Density from which a bitmap is not checked: it rules out few rows that the bounds of the keys do not rule out.
const CHECKED_DENSITY_MAX: f64 = 0.95;

/// Row predicate: a column has one of the keys of a join's build side.
#[derive(Debug)]
struct KeyPredicate {
    columns: [ColumnIndex; 1],
    keys: Arc<KeySet>,
}

impl RowPredicate for KeyPredicate {
    fn columns(&self) -> &[ColumnIndex] {
        &self.columns
    }

    fn evaluate(&self, columns: &[ArrayRef], _rows: usize) -> Result<BooleanArray, ArrowError> {
        let [values] = columns else {
            return Err(ArrowError::ComputeError(format!("a key of {} columns in place of one", columns.len())));
        };
        let found = self.keys.contains(values);
        found.ok_or_else(|| ArrowError::ComputeError(format!("a key of type {}", values.data_type())))
    }
}

/// Whether a dynamic filter comes from a join. Such a filter is a list of keys, or a lookup in the hash table of all
/// keys. A partitioned join has one of these for each partition. The filters of sorts and aggregates compare with a row
/// that the operator holds.
fn comes_from_join(filter: &Arc<dyn PhysicalExpr>) -> Result<bool> {
    filter.exists(|node| {
        Ok(node.downcast_ref::<InListExpr>().is_some()
            || node.downcast_ref::<HashTableLookupExpr>().is_some()
            || node.downcast_ref::<CaseExpr>().is_some())
    })
}

/// Whether an operator or a list in an expression has a floating-point left operand, alone or as a field of a struct.
fn compares_floating_point(expression: &Arc<dyn PhysicalExpr>, arrow: &SchemaRef) -> Result<bool> {
    fn is_floating(data_type: &DataType) -> bool {
        match data_type {
            DataType::Struct(fields) => fields.iter().any(|field| is_floating(field.data_type())),
            DataType::Dictionary(_, values) => is_floating(values),
            data_type => data_type.is_floating(),
        }
    }
    expression.exists(|node| {
        let operand = match (node.downcast_ref::<BinaryExpr>(), node.downcast_ref::<InListExpr>()) {
            (Some(binary), _) => binary.left(),
            (_, Some(list)) => list.expr(),
            _ => return Ok(false),
        };
        Ok(is_floating(&operand.data_type(arrow)?))
    })
}

/// Adds a predicate to a conjunction. Bounds and lists of one column become one predicate. The bounds of `BETWEEN` are
/// then one range for an index, and the column is read once.
pub fn add_predicate(predicates: &mut Vec<ColumnPredicate>, predicate: ColumnPredicate) {
    for other in
        predicates.iter_mut().filter(|other| other.column == predicate.column && !other.negated && !predicate.negated)
    {
        if let Some(both) = intersection(&other.condition, &predicate.condition) {
            other.condition = both;
            return;
        }
    }
    predicates.push(predicate);
}

/// Returns the column predicate that is equivalent to an expression, or `None` if there is none.
fn column_predicate(expression: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<ColumnPredicate> {
    if let Some(binary) = expression.downcast_ref::<BinaryExpr>() {
        if let (Some(compared), Some(literal)) = (compared_column(binary.left(), schema), literal_of(binary.right())) {
            return typed_comparison(compared, *binary.op(), literal);
        }
        if let (Some(literal), Some(compared)) = (literal_of(binary.left()), compared_column(binary.right(), schema)) {
            return typed_comparison(compared, binary.op().swap()?, literal);
        }
        return None;
    }
    if let Some(not) = expression.downcast_ref::<NotExpr>() {
        let inner = column_predicate(not.arg(), schema)?;
        return Some(ColumnPredicate { negated: !inner.negated, ..inner });
    }
    if let Some(is_null) = expression.downcast_ref::<IsNullExpr>() {
        return Some(ColumnPredicate::new(column_of(is_null.arg())?, DatumPredicate::Null));
    }
    if let Some(is_not_null) = expression.downcast_ref::<IsNotNullExpr>() {
        return Some(ColumnPredicate {
            column: column_of(is_not_null.arg())?,
            condition: DatumPredicate::Null,
            negated: true,
        });
    }
    if let Some(list) = expression.downcast_ref::<InListExpr>() {
        let literals = list.list().iter().map(literal_of);
        return typed_list_predicate(compared_column(list.expr(), schema)?, literals, list.negated());
    }
    if let Some(like) = expression.downcast_ref::<LikeExpr>() {
        return like_predicate(like, schema);
    }
    let column = column_of(expression)?;
    (schema.column(column).logical_type == LogicalType::Boolean)
        .then(|| ColumnPredicate::new(column, DatumPredicate::Range { low: 1, high: 1 }))
}

fn column_of(expression: &Arc<dyn PhysicalExpr>) -> Option<ColumnIndex> {
    expression.downcast_ref::<Column>().map(|column| column.index().into())
}

/// Returns a column, and the type in which it is compared: its own, or a wider integer type with the same numbers. The
/// planner keeps such a cast if a literal is outside the range of the column's type, or in a join of both types.
fn compared_column(expression: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<(ColumnIndex, LogicalType)> {
    let Some(cast) = expression.downcast_ref::<CastExpr>() else {
        let column = column_of(expression)?;
        return Some((column, schema.column(column).logical_type));
    };
    let column = column_of(cast.expr())?;
    let (from, to) = (schema.column(column).logical_type, LogicalType::from_arrow(cast.cast_type())?);
    let is_wider = match to {
        LogicalType::Integer => from == LogicalType::SmallInt,
        LogicalType::BigInt => matches!(from, LogicalType::SmallInt | LogicalType::Integer),
        _ => false,
    };
    is_wider.then_some((column, to))
}

fn literal_of(expression: &Arc<dyn PhysicalExpr>) -> Option<&ScalarValue> {
    expression.downcast_ref::<Literal>().map(Literal::value)
}

/// A predicate that no value passes, for comparisons with null.
fn never_true(column: ColumnIndex, logical_type: LogicalType) -> ColumnPredicate {
    ColumnPredicate::one_of(column, logical_type, [])
}

/// Converts a literal to a datum of a type. Returns `Some(None)` for null, and `None` for a literal of another type.
pub fn literal_datum(value: &ScalarValue, logical_type: LogicalType) -> Option<Option<Datum>> {
    if let ScalarValue::Dictionary(_, inner) = value {
        return literal_datum(inner, logical_type);
    }
    if value.is_null() {
        return Some(None);
    }
    Some(datum_at(&cast_for_datums(&value.to_array().ok()?, logical_type)?, logical_type, 0))
}

/// Casts an array of a type to the representation that datums are read from. `None` if the array has another type.
fn cast_for_datums(array: &ArrayRef, logical_type: LogicalType) -> Option<ArrayRef> {
    let wanted = logical_type.arrow();
    let same = LogicalType::from_arrow(array.data_type()) == Some(logical_type);
    match () {
        () if *array.data_type() == wanted => Some(Arc::clone(array)),
        () if same && logical_type.is_bytes() => cast(array, &wanted).ok(),
        () => None,
    }
}

/// Converts `column operator literal` to a column predicate. Returns `None` if the operator is not a comparison, or if
/// the literal does not have the column's type.
pub fn comparison(
    column: ColumnIndex,
    operator: Operator,
    literal: &ScalarValue,
    schema: &Schema,
) -> Option<ColumnPredicate> {
    typed_comparison((column, schema.column(column).logical_type), operator, literal)
}

/// Like [`comparison`], with a literal of type `logical_type`.
fn typed_comparison(
    (column, logical_type): (ColumnIndex, LogicalType),
    operator: Operator,
    literal: &ScalarValue,
) -> Option<ColumnPredicate> {
    let is_comparison = matches!(
        operator,
        Operator::Eq | Operator::NotEq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq
    );
    if !is_comparison {
        return None;
    }
    let predicate = match literal_datum(literal, logical_type)? {
        None => return Some(never_true(column, logical_type)),
        Some(Datum::Number(number)) => number_predicate(operator, equal_numbers(number, logical_type)),
        Some(Datum::Bytes(bytes)) => bytes_predicate(operator, bytes),
    };
    Some(ColumnPredicate { column, condition: predicate, negated: operator == Operator::NotEq })
}

fn number_predicate(operator: Operator, equal: RangeInclusive<i128>) -> DatumPredicate {
    let (first, last) = equal.into_inner();
    let (low, high) = match operator {
        // No datum is i128::MIN or i128::MAX: the widest type has 38 digits.
        Operator::Lt => (i128::MIN, first.saturating_sub(1)),
        Operator::LtEq => (i128::MIN, last),
        Operator::Gt => (last.saturating_add(1), i128::MAX),
        Operator::GtEq => (first, i128::MAX),
        _ => (first, last),
    };
    DatumPredicate::Range { low, high }
}

fn bytes_predicate(operator: Operator, bytes: Box<[u8]>) -> DatumPredicate {
    let (low, high) = match operator {
        Operator::Lt => (Bound::Unbounded, Bound::Excluded(bytes)),
        Operator::LtEq => (Bound::Unbounded, Bound::Included(bytes)),
        Operator::Gt => (Bound::Excluded(bytes), Bound::Unbounded),
        Operator::GtEq => (Bound::Included(bytes), Bound::Unbounded),
        _ => return DatumPredicate::BytesOneOf(Arc::from([bytes])),
    };
    DatumPredicate::BytesRange { low, high }
}

/// Converts `column IN (literals)` or `NOT IN` to a column predicate. Returns `None` if a literal does not have the
/// column's type.
pub fn list_predicate<'a>(
    column: ColumnIndex,
    literals: impl Iterator<Item = Option<&'a ScalarValue>>,
    negated: bool,
    schema: &Schema,
) -> Option<ColumnPredicate> {
    typed_list_predicate((column, schema.column(column).logical_type), literals, negated)
}

/// Like [`list_predicate`], with literals of type `logical_type`.
fn typed_list_predicate<'a>(
    (column, logical_type): (ColumnIndex, LogicalType),
    literals: impl Iterator<Item = Option<&'a ScalarValue>>,
    negated: bool,
) -> Option<ColumnPredicate> {
    let datums = literals.map(|literal| literal_datum(literal?, logical_type)).collect::<Option<Vec<_>>>()?;
    if negated && datums.contains(&None) {
        // `x NOT IN (..., NULL)` is never true; `x IN (..., NULL)` is true only for the other values.
        return Some(never_true(column, logical_type));
    }
    Some(ColumnPredicate { negated, ..ColumnPredicate::one_of(column, logical_type, datums.into_iter().flatten()) })
}

/// Converts `LIKE 'prefix%'` to a range and `LIKE 'word'` to an equality. Returns `None` for other patterns.
fn like_predicate(like: &LikeExpr, schema: &Schema) -> Option<ColumnPredicate> {
    let column = column_of(like.expr())?;
    if like.case_insensitive() || schema.column(column).logical_type != LogicalType::Varchar {
        return None;
    }
    let pattern = literal_of(like.pattern())?.try_as_str()??;
    let (prefix, is_prefix) = match pattern.strip_suffix('%') {
        Some(prefix) => (prefix, true),
        None => (pattern, false),
    };
    if prefix.contains(['%', '_', '\\']) {
        return None;
    }
    let predicate = if is_prefix {
        let low: Box<[u8]> = prefix.as_bytes().into();
        let high = successor_of_prefix(prefix.as_bytes()).map_or(Bound::Unbounded, Bound::Excluded);
        DatumPredicate::BytesRange { low: Bound::Included(low), high }
    } else {
        DatumPredicate::BytesOneOf(Arc::from([prefix.as_bytes().into()]))
    };
    Some(ColumnPredicate { column, condition: predicate, negated: like.negated() })
}

/// Least string that is greater than all strings with a prefix. `None` if the prefix has only bytes 0xff.
fn successor_of_prefix(prefix: &[u8]) -> Option<Box<[u8]>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut successor = prefix[..=last].to_vec();
    successor[last] += 1;
    Some(successor.into())
}

/// Row predicate that evaluates an expression on decoded columns.
#[derive(Debug)]
struct ExpressionPredicate {
    columns: Vec<ColumnIndex>,
    /// Expression over a batch of exactly `columns`.
    expression: Arc<dyn PhysicalExpr>,
    schema: SchemaRef,
    non_null_predicate: Option<NonNullPredicate>,
}

impl ExpressionPredicate {
    fn new(expression: &Arc<dyn PhysicalExpr>, arrow: &SchemaRef) -> Result<Self> {
        let (expression, positions, schema) = narrow_to_used_columns(expression, arrow)?;
        let columns = positions.into_iter().map(ColumnIndex::from).collect();
        Ok(Self { columns, expression, schema, non_null_predicate: None })
    }
}

impl RowPredicate for ExpressionPredicate {
    fn columns(&self) -> &[ColumnIndex] {
        &self.columns
    }

    fn evaluate(&self, columns: &[ArrayRef], rows: usize) -> Result<BooleanArray, ArrowError> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        // The values of a dictionary may include null even if the column is declared without nulls.
        let fields = self.schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
        let schema = Arc::new(datafusion::arrow::datatypes::Schema::new(fields.collect::<Vec<_>>()));
        let batch = RecordBatch::try_new_with_options(schema, columns.to_vec(), &options)?;
        let result = self.expression.evaluate(&batch).and_then(|value| value.into_array(rows));
        match result {
            Ok(array) => match array.as_boolean_opt() {
                Some(flags) => Ok(flags.clone()),
                None => Err(ArrowError::ComputeError(format!("a filter of type {}", array.data_type()))),
            },
            Err(error) => Err(ArrowError::ExternalError(Box::new(error))),
        }
    }

    fn non_null_predicate(&self) -> Option<&NonNullPredicate> {
        self.non_null_predicate.as_ref()
    }
}

/// Rewrites an expression over the columns of a table for a batch that has only the columns it uses. Returns the
/// expression, the indexes of these columns and their schema.
pub fn narrow_to_used_columns(
    expression: &Arc<dyn PhysicalExpr>,
    arrow: &SchemaRef,
) -> Result<(Arc<dyn PhysicalExpr>, Vec<usize>, SchemaRef)> {
    let mut positions: Vec<usize> = collect_columns(expression).iter().map(Column::index).collect();
    positions.sort_unstable();
    let schema = Arc::new(arrow.project(&positions)?);
    let expression = map_columns(expression, |column| {
        let position = positions.binary_search(&column.index()).ok()?;
        Some(Column::new(column.name(), position))
    })?;
    Ok((expression, positions, schema))
}

/// Replaces every column of an expression. Dynamic filters stay connected to their producers.
///
/// # Errors
/// If there is no replacement for a column.
pub fn map_columns(
    expression: &Arc<dyn PhysicalExpr>,
    replacement: impl Fn(&Column) -> Option<Column>,
) -> Result<Arc<dyn PhysicalExpr>> {
    let mapped = Arc::clone(expression).transform_up(|node| {
        let Some(column) = node.downcast_ref::<Column>() else { return Ok(Transformed::no(node)) };
        match replacement(column) {
            Some(column) => Ok(Transformed::yes(Arc::new(column) as Arc<dyn PhysicalExpr>)),
            None => internal_err!("column {column} of a pushed filter is not in the scan"),
        }
    })?;
    Ok(mapped.data)
}

#[cfg(test)]
mod tests;
