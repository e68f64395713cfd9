//! Integer and decimal arithmetic in 64 bits, if bounds of the columns prove that nothing overflows.
//!
//! ```text
//! l_extendedprice * (1 - l_discount) * (1 + l_tax)      decimal(38, 6), 128 bits a value
//!   l_extendedprice   90,100 ..= 10,494,950             unscaled, from the zones of the segment
//!   100 - l_discount  90 ..= 100
//!   100 + l_tax       100 ..= 108
//!   product           810,900,000 ..= 113,345,460,000   37 bits: exact in 64
//! ```
//!
//! Expressions share common subexpressions. Only plain arithmetic on integers, decimals, days and microseconds is
//! compiled. DataFusion evaluates other expressions, and all expressions on segments whose bounds do not exclude an
//! overflow.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema as ArrowSchema, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::physical_expr::ScalarFunctionExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column, Literal};
use datafusion::physical_plan::PhysicalExpr;
use taut_types::ColumnIndex;

use crate::expressions::Operation;

/// Index of a subexpression. Operands come before the expressions that use them.
pub type NodeIndex = usize;

/// Minimum and maximum.
pub type Bounds = (i128, i128);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeKind {
    /// A column, by its index in [`Arithmetic::columns`].
    Column(usize),
    Literal(i64),
    Combined(Operation, NodeIndex, NodeIndex),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Node {
    kind: NodeKind,
    /// Results in this range equal those of DataFusion. Beyond it, a result overflows 64 bits or DataFusion's type.
    limit: Bounds,
}

/// Expressions over the columns of a table. Common subexpressions are computed once.
#[derive(Clone, Debug, Default)]
pub struct Arithmetic {
    /// Columns that the expressions read.
    pub columns: Vec<ColumnIndex>,
    nodes: Vec<Node>,
}

/// Values of a subexpression for the rows of a batch.
#[derive(Clone, Debug)]
pub enum Numbers<'a> {
    /// The same number for each row.
    Constant(i64),
    Read(&'a [i64]),
    Computed(Vec<i64>),
}

impl Numbers<'_> {
    /// Returns the value of a row.
    #[inline]
    pub fn value(&self, row: usize) -> i64 {
        match self {
            Self::Constant(number) => *number,
            Self::Read(numbers) => numbers[row],
            Self::Computed(numbers) => numbers[row],
        }
    }

    /// Returns the values as a slice. `None` for a constant.
    pub fn slice(&self) -> Option<&[i64]> {
        match self {
            Self::Constant(_) => None,
            Self::Read(numbers) => Some(numbers),
            Self::Computed(numbers) => Some(numbers),
        }
    }
}

const I64: Bounds = (i64::MIN as i128, i64::MAX as i128);

/// Returns the range of a type, limited to 64 bits. `None` for types that are not compiled.
pub fn type_range(data_type: &DataType) -> Option<Bounds> {
    Some(match data_type {
        DataType::Int16 => (i16::MIN.into(), i16::MAX.into()),
        DataType::Int32 | DataType::Date32 => (i32::MIN.into(), i32::MAX.into()),
        DataType::Int64 | DataType::Timestamp(TimeUnit::Microsecond, _) | DataType::Decimal128(..) => I64,
        _ => return None,
    })
}

impl Arithmetic {
    /// Compiles an expression. Returns `None` if a part of it is not supported arithmetic.
    pub fn compile(&mut self, expression: &Arc<dyn PhysicalExpr>, schema: &ArrowSchema) -> Option<NodeIndex> {
        let (columns, nodes) = (self.columns.len(), self.nodes.len());
        let node = self.compile_node(expression, schema);
        if node.is_none() {
            self.columns.truncate(columns);
            self.nodes.truncate(nodes);
        }
        node
    }

    fn compile_node(&mut self, expression: &Arc<dyn PhysicalExpr>, schema: &ArrowSchema) -> Option<NodeIndex> {
        let data_type = expression.data_type(schema).ok()?;
        let limit = type_range(&data_type)?;
        if let Some(column) = expression.downcast_ref::<Column>() {
            let index = ColumnIndex::from(column.index());
            let position = self.columns.iter().position(|known| *known == index).unwrap_or_else(|| {
                self.columns.push(index);
                self.columns.len() - 1
            });
            return Some(self.add_node(NodeKind::Column(position), limit));
        }
        if let Some(literal) = expression.downcast_ref::<Literal>() {
            return Some(self.add_node(NodeKind::Literal(literal_number(literal.value())?), limit));
        }
        if let Some(cast) = expression.downcast_ref::<CastExpr>() {
            return self.cast(cast.expr(), &data_type, schema);
        }
        let call = expression.downcast_ref::<ScalarFunctionExpr>()?;
        let (Some(operation), [left, right]) = (Operation::of_call(call), call.args()) else { return None };
        let (left_type, right_type) = (left.data_type(schema).ok()?, right.data_type(schema).ok()?);
        let (left, right) = (self.compile_node(left, schema)?, self.compile_node(right, schema)?);
        let scales = (scale_of(&left_type)?, scale_of(&right_type)?, scale_of(&data_type)?);
        let (left, right) = match operation {
            Operation::Multiply if scales.0 + scales.1 == scales.2 => (left, right),
            Operation::Multiply => return None,
            // DataFusion converts both operands to the greater scale.
            _ => (self.scale_up(left, scales.2 - scales.0)?, self.scale_up(right, scales.2 - scales.1)?),
        };
        Some(self.add_node(NodeKind::Combined(operation, left, right), limit))
    }

    /// Compiles a cast that changes no number: to a wider integer, or to a decimal of at least the same scale.
    fn cast(&mut self, inner: &Arc<dyn PhysicalExpr>, to: &DataType, schema: &ArrowSchema) -> Option<NodeIndex> {
        let from = inner.data_type(schema).ok()?;
        let is_integer =
            |data_type: &DataType| matches!(data_type, DataType::Int16 | DataType::Int32 | DataType::Int64);
        match to {
            DataType::Int32 | DataType::Int64 if is_integer(&from) => {
                let node = self.compile_node(inner, schema)?;
                Some(self.with_limit(node, type_range(to)?))
            }
            DataType::Decimal128(precision, scale) if is_integer(&from) || matches!(from, DataType::Decimal128(..)) => {
                let node = self.compile_node(inner, schema)?;
                let node = self.scale_up(node, scale - scale_of(&from)?)?;
                // If numbers may have more digits, DataFusion evaluates the expression and reports the error.
                let greatest = 10_i128.checked_pow(u32::from(*precision))? - 1;
                Some(self.with_limit(node, (-greatest, greatest)))
            }
            _ => None,
        }
    }

    /// Multiplies a subexpression by a power of ten.
    fn scale_up(&mut self, node: NodeIndex, digits: i8) -> Option<NodeIndex> {
        if digits == 0 {
            return Some(node);
        }
        let factor = 10_i64.checked_pow(u32::try_from(digits).ok()?)?;
        let factor = self.add_node(NodeKind::Literal(factor), I64);
        Some(self.add_node(NodeKind::Combined(Operation::Multiply, node, factor), I64))
    }

    /// Narrows the range in which the results of a subexpression equal those of DataFusion.
    fn with_limit(&mut self, node: NodeIndex, (low, high): Bounds) -> NodeIndex {
        let Node { kind, limit } = self.nodes[node];
        self.add_node(kind, (limit.0.max(low), limit.1.min(high)))
    }

    fn add_node(&mut self, kind: NodeKind, limit: Bounds) -> NodeIndex {
        let node = Node { kind, limit };
        self.nodes.iter().position(|known| *known == node).unwrap_or_else(|| {
            self.nodes.push(node);
            self.nodes.len() - 1
        })
    }

    /// Returns the column if a subexpression is just a column.
    pub fn column_of(&self, node: NodeIndex) -> Option<ColumnIndex> {
        match self.nodes[node].kind {
            NodeKind::Column(position) => Some(self.columns[position]),
            _ => None,
        }
    }

    /// Indexes in [`Arithmetic::columns`] of the columns that a subexpression reads, ascending.
    pub fn columns_of(&self, node: NodeIndex) -> Vec<usize> {
        match self.nodes[node].kind {
            NodeKind::Column(position) => vec![position],
            NodeKind::Literal(_) => vec![],
            NodeKind::Combined(_, left, right) => {
                let mut positions = self.columns_of(left);
                positions.extend(self.columns_of(right));
                positions.sort_unstable();
                positions.dedup();
                positions
            }
        }
    }

    /// Returns the bounds of each subexpression, from the bounds of [`Arithmetic::columns`]. `None` for subexpressions
    /// that may overflow 64 bits.
    pub fn bounds(&self, columns: &[Option<Bounds>]) -> Vec<Option<Bounds>> {
        let mut bounds: Vec<Option<Bounds>> = Vec::with_capacity(self.nodes.len());
        for Node { kind, limit } in &self.nodes {
            let found = match kind {
                NodeKind::Column(position) => columns[*position],
                NodeKind::Literal(number) => Some((i128::from(*number), i128::from(*number))),
                NodeKind::Combined(operation, left, right) => match (bounds[*left], bounds[*right]) {
                    (Some(left), Some(right)) => Some(combined_bounds(*operation, left, right)),
                    _ => None,
                },
            };
            bounds.push(found.filter(|(low, high)| limit.0 <= *low && *high <= limit.1));
        }
        bounds
    }

    /// Computes the subexpressions that `is_needed` selects, for all rows of the columns.
    pub fn evaluate<'a>(&self, columns: &[&'a [i64]], is_needed: &[bool]) -> Vec<Numbers<'a>> {
        let mut values: Vec<Numbers<'a>> = Vec::with_capacity(self.nodes.len());
        for (node, is_needed) in self.nodes.iter().zip(is_needed) {
            let value = match node.kind {
                _ if !is_needed => Numbers::Constant(0),
                NodeKind::Column(position) => Numbers::Read(columns[position]),
                NodeKind::Literal(number) => Numbers::Constant(number),
                NodeKind::Combined(operation, left, right) => combine(operation, &values[left], &values[right]),
            };
            values.push(value);
        }
        values
    }

    /// Returns a flag for each subexpression: whether it must be computed for these outputs.
    pub fn needed_nodes(&self, outputs: impl Iterator<Item = NodeIndex>) -> Vec<bool> {
        let mut is_needed = vec![false; self.nodes.len()];
        outputs.for_each(|node| is_needed[node] = true);
        for node in (0..self.nodes.len()).rev() {
            if let (true, NodeKind::Combined(_, left, right)) = (is_needed[node], self.nodes[node].kind) {
                (is_needed[left], is_needed[right]) = (true, true);
            }
        }
        is_needed
    }
}

/// Bounds of an operation. Operands have at most 64 bits, so 128 bits hold every product.
fn combined_bounds(operation: Operation, left: Bounds, right: Bounds) -> Bounds {
    match operation {
        Operation::Add => (left.0 + right.0, left.1 + right.1),
        Operation::Subtract => (left.0 - right.1, left.1 - right.0),
        Operation::Multiply => {
            let corners = [left.0 * right.0, left.0 * right.1, left.1 * right.0, left.1 * right.1];
            let [first, rest @ ..] = corners;
            rest.into_iter().fold((first, first), |(low, high), corner| (low.min(corner), high.max(corner)))
        }
    }
}

/// Computes an operation. Wraps on overflow, which happens only if bounds are wrong because statistics are corrupt.
fn combine<'a>(operation: Operation, left: &Numbers<'_>, right: &Numbers<'_>) -> Numbers<'a> {
    match operation {
        Operation::Add => zip(left, right, i64::wrapping_add),
        Operation::Subtract => zip(left, right, i64::wrapping_sub),
        Operation::Multiply => zip(left, right, i64::wrapping_mul),
    }
}

#[inline(always)]
fn zip<'a>(left: &Numbers<'_>, right: &Numbers<'_>, combine: impl Fn(i64, i64) -> i64) -> Numbers<'a> {
    match (left.slice(), right.slice()) {
        (Some(left), Some(right)) => {
            Numbers::Computed(left.iter().zip(right).map(|(left, right)| combine(*left, *right)).collect())
        }
        (Some(left), None) => {
            let right = constant(right);
            Numbers::Computed(left.iter().map(|left| combine(*left, right)).collect())
        }
        (None, Some(right)) => {
            let left = constant(left);
            Numbers::Computed(right.iter().map(|right| combine(left, *right)).collect())
        }
        (None, None) => Numbers::Constant(combine(constant(left), constant(right))),
    }
}

fn constant(numbers: &Numbers<'_>) -> i64 {
    match numbers {
        Numbers::Constant(number) => *number,
        Numbers::Read(_) | Numbers::Computed(_) => 0,
    }
}

fn scale_of(data_type: &DataType) -> Option<i8> {
    match data_type {
        DataType::Int16 | DataType::Int32 | DataType::Int64 => Some(0),
        DataType::Decimal128(_, scale) => Some(*scale),
        _ => None,
    }
}

fn literal_number(value: &ScalarValue) -> Option<i64> {
    match value {
        ScalarValue::Int16(Some(number)) => Some(i64::from(*number)),
        ScalarValue::Int32(Some(number)) | ScalarValue::Date32(Some(number)) => Some(i64::from(*number)),
        ScalarValue::Int64(Some(number)) | ScalarValue::TimestampMicrosecond(Some(number), _) => Some(*number),
        ScalarValue::Decimal128(Some(number), ..) => i64::try_from(*number).ok(),
        _ => None,
    }
}
