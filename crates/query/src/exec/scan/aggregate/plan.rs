//! Finds aggregations that a scan can compute, and plans them.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema as ArrowSchema, SchemaRef};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::source::DataSourceExec;
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{ExecutionPlan, InputOrderMode, PhysicalExpr};
use taut_types::ColumnIndex;

use super::super::predicate::map_columns;
use super::super::source::ScanSource;
use super::arithmetic::{Arithmetic, NodeIndex, type_range};
use crate::exec::scan::TautTable;

/// An aggregation over a scan.
#[derive(Debug)]
pub struct AggregatePlan {
    /// Columns of the table that rows are grouped by.
    pub keys: Vec<ColumnIndex>,
    /// Schema of the grouping keys in DataFusion's partial aggregation.
    pub key_schema: SchemaRef,
    /// Distinct arguments and `FILTER` conditions of the functions.
    pub inputs: Vec<Input>,
    /// Arguments that are integer or decimal arithmetic.
    pub arithmetic: Arithmetic,
    /// Functions, in the order of the partial states.
    pub functions: Vec<Function>,
    /// Schema of grouping keys and partial states.
    pub schema: SchemaRef,
}

impl AggregatePlan {
    /// Whether rows that were added to a group can be subtracted from it. True for sums, averages and counts; false for
    /// minima, maxima and functions that DataFusion computes.
    pub fn can_subtract(&self) -> bool {
        let is_extreme = |function: &Function| matches!(function, Function::Extreme { .. });
        self.functions.iter().all(|function| !is_extreme(function) && function.engine_function().is_none())
    }
}

/// An argument or `FILTER` condition of aggregate functions.
#[derive(Debug)]
pub struct Input {
    /// Expression over a batch of `columns`.
    pub expression: Arc<dyn PhysicalExpr>,
    pub columns: Vec<ColumnIndex>,
    /// The fields of `columns`.
    pub schema: SchemaRef,
    /// Root of the argument in `arithmetic`, if it was compiled. All functions that use it then accept numbers.
    pub node: Option<NodeIndex>,
    /// The column, if the argument is a column of text or bytes and all functions that use it accept codes.
    pub codes_of: Option<ColumnIndex>,
}

/// An aggregate function and the indexes of its arguments.
#[derive(Clone, Debug)]
pub enum Function {
    /// Counts rows, null or not.
    CountRows,
    Count {
        input: usize,
    },
    /// Sum of 64-bit integers or decimals.
    Sum {
        input: usize,
        data_type: DataType,
    },
    /// Average of decimals. `data_type` is the type of the sum.
    Average {
        input: usize,
        data_type: DataType,
    },
    /// Minimum or maximum of numbers.
    Extreme {
        input: usize,
        is_greatest: bool,
        data_type: DataType,
    },
    /// Minimum or maximum of a column of text or bytes. DataFusion computes it from all values, or from the extremes of
    /// each segment that has codes.
    ExtremeText {
        input: usize,
        is_greatest: bool,
        function: Arc<AggregateFunctionExpr>,
    },
    /// Any other function, which DataFusion computes.
    Engine {
        function: Arc<AggregateFunctionExpr>,
        inputs: Vec<usize>,
        condition: Option<usize>,
    },
}

impl Function {
    /// DataFusion's function, if DataFusion computes its states.
    pub fn engine_function(&self) -> Option<&Arc<AggregateFunctionExpr>> {
        match self {
            Self::Engine { function, .. } | Self::ExtremeText { function, .. } => Some(function),
            _ => None,
        }
    }

    /// Whether the function needs the argument or condition with this index as an array in every segment.
    fn needs_array(&self, index: usize) -> bool {
        matches!(self, Self::Engine { inputs, condition, .. } if inputs.contains(&index) || *condition == Some(index))
    }
}

/// An aggregation that may be replaced, with the scan below it.
pub struct ReplaceableAggregate {
    pub plan: AggregatePlan,
    pub scan: Arc<dyn ExecutionPlan>,
}

/// Plans an aggregation inside a scan. Returns `None` if there are operators other than projections between the
/// aggregation and the scan, or if the scan cannot compute the aggregation.
pub fn find_replaceable(aggregate: &AggregateExec) -> Option<ReplaceableAggregate> {
    let is_plain =
        matches!(aggregate.mode(), AggregateMode::Partial | AggregateMode::Single | AggregateMode::SinglePartitioned)
            && *aggregate.input_order_mode() == InputOrderMode::Linear
            && aggregate.limit_options().is_none()
            && aggregate.dynamic_expressions_produced().is_empty()
            && !aggregate.group_expr().has_grouping_set()
            && (aggregate.group_expr().is_single() || aggregate.group_expr().is_true_no_grouping());
    if !is_plain {
        return None;
    }
    let mut projections: Vec<&ProjectionExec> = Vec::new();
    let mut scan = aggregate.input();
    loop {
        if let Some(projection) = scan.downcast_ref::<ProjectionExec>() {
            projections.push(projection);
            scan = projection.input();
        } else if let Some(cooperative) = scan.downcast_ref::<CooperativeExec>() {
            scan = cooperative.input();
        } else {
            break;
        }
    }
    let source = scan.downcast_ref::<DataSourceExec>()?.data_source().downcast_ref::<ScanSource>()?;
    if !source.is_unordered() || source.has_row_ids() {
        return None;
    }
    let resolver = Resolver { projections, source, arrow: source.table().arrow() };
    let plan = resolver.plan(aggregate).ok()??;
    Some(ReplaceableAggregate { plan, scan: Arc::clone(scan) })
}

/// Converts expressions over the input of an aggregation to expressions over the columns of its table.
struct Resolver<'a> {
    projections: Vec<&'a ProjectionExec>,
    source: &'a ScanSource,
    arrow: SchemaRef,
}

impl Resolver<'_> {
    fn plan(&self, aggregate: &AggregateExec) -> Result<Option<AggregatePlan>> {
        let mut keys = Vec::new();
        for (expression, _) in aggregate.group_expr().expr() {
            match self.resolve(expression)?.downcast_ref::<Column>() {
                Some(column) => keys.push(ColumnIndex::from(column.index())),
                None => return Ok(None),
            }
        }
        let schema = partial_schema(aggregate)?;
        let key_fields = schema.fields()[..keys.len()].to_vec();
        let mut plan = AggregatePlan {
            keys,
            key_schema: Arc::new(ArrowSchema::new(key_fields)),
            inputs: Vec::new(),
            arithmetic: Arithmetic::default(),
            functions: Vec::new(),
            schema,
        };
        let is_grouped = !plan.keys.is_empty();
        let mut resolved: Vec<Arc<dyn PhysicalExpr>> = Vec::new();
        for (function, condition) in aggregate.aggr_expr().iter().zip(aggregate.filter_expr()) {
            let is_simple = !function.is_distinct()
                && function.order_bys().is_empty()
                && function.order_sensitivity() == AggregateOrderSensitivity::Insensitive
                && (is_grouped || condition.is_none());
            if !is_simple {
                return Ok(None);
            }
            let mut arguments = Vec::new();
            for argument in function.expressions() {
                arguments.push(self.resolve(&argument)?);
            }
            let condition = condition.as_ref().map(|condition| self.resolve(condition)).transpose()?;
            let all = arguments.iter().chain(&condition);
            if all.clone().any(|part| part.exists(|node| Ok(node.is_volatile_node())).unwrap_or(true)) {
                return Ok(None);
            }
            let Some(function) = self.function(function, &arguments, condition, is_grouped, &mut resolved)? else {
                return Ok(None);
            };
            plan.functions.push(function);
        }
        for (index, expression) in resolved.iter().enumerate() {
            let mut input = self.input(expression)?;
            if !plan.functions.iter().any(|function| function.needs_array(index)) {
                input.node = plan.arithmetic.compile(expression, &self.arrow);
                input.codes_of = self.text_column(expression)?;
            }
            plan.inputs.push(input);
        }
        Ok(Some(plan))
    }

    fn function(
        &self,
        function: &Arc<AggregateFunctionExpr>,
        arguments: &[Arc<dyn PhysicalExpr>],
        condition: Option<Arc<dyn PhysicalExpr>>,
        is_grouped: bool,
        inputs: &mut Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Option<Function>> {
        let mut input_index = |expression: &Arc<dyn PhysicalExpr>| {
            inputs.iter().position(|known| known == expression).unwrap_or_else(|| {
                inputs.push(Arc::clone(expression));
                inputs.len() - 1
            })
        };
        if let ([argument], None) = (arguments, &condition) {
            let input_type = argument.data_type(&self.arrow)?;
            let states = function.state_fields()?;
            let types: Vec<&DataType> = states.iter().map(|field| field.data_type()).collect();
            let is_number = type_range(&input_type).is_some();
            let native = match (function.fun().name(), types.as_slice()) {
                ("count", [DataType::Int64]) if self.is_never_null(argument)? => Some(Function::CountRows),
                ("count", [DataType::Int64]) => Some(Function::Count { input: input_index(argument) }),
                ("sum", [data_type @ DataType::Decimal128(..)])
                    if input_type == DataType::Int64 || is_decimal(&input_type) =>
                {
                    Some(Function::Sum { input: input_index(argument), data_type: (*data_type).clone() })
                }
                ("avg", [DataType::UInt64, data_type @ DataType::Decimal128(..)]) if is_decimal(&input_type) => {
                    Some(Function::Average { input: input_index(argument), data_type: (*data_type).clone() })
                }
                (name @ ("min" | "max"), [data_type]) if is_number && **data_type == input_type => {
                    let is_greatest = name == "max";
                    Some(Function::Extreme { input: input_index(argument), is_greatest, data_type: input_type })
                }
                (name @ ("min" | "max"), [data_type])
                    if **data_type == input_type
                        && self.text_column(argument)?.is_some()
                        && (!is_grouped || function.groups_accumulator_supported()) =>
                {
                    let (input, is_greatest) = (input_index(argument), name == "max");
                    Some(Function::ExtremeText { input, is_greatest, function: Arc::clone(function) })
                }
                _ => None,
            };
            if native.is_some() {
                return Ok(native);
            }
        }
        if is_grouped && !function.groups_accumulator_supported() {
            return Ok(None);
        }
        let inputs = arguments.iter().map(&mut input_index).collect();
        let condition = condition.as_ref().map(input_index);
        Ok(Some(Function::Engine { function: Arc::clone(function), inputs, condition }))
    }

    fn is_never_null(&self, expression: &Arc<dyn PhysicalExpr>) -> Result<bool> {
        if let Some(literal) = expression.downcast_ref::<Literal>() {
            return Ok(!literal.value().is_null());
        }
        Ok(expression.downcast_ref::<Column>().is_some() && !expression.nullable(&self.arrow)?)
    }

    /// Returns the column if an expression is just a column of text or bytes.
    fn text_column(&self, expression: &Arc<dyn PhysicalExpr>) -> Result<Option<ColumnIndex>> {
        let Some(column) = expression.downcast_ref::<Column>() else { return Ok(None) };
        let is_text = matches!(expression.data_type(&self.arrow)?, DataType::Utf8View | DataType::BinaryView);
        Ok(is_text.then(|| ColumnIndex::from(column.index())))
    }

    /// Converts an expression to one over the columns of the table.
    fn resolve(&self, expression: &Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
        let mut resolved = Arc::clone(expression);
        for projection in &self.projections {
            let changed = resolved.transform_up(|node| {
                let inner = node.downcast_ref::<Column>().and_then(|column| projection.expr().get(column.index()));
                Ok(match inner {
                    Some(inner) => Transformed::yes(Arc::clone(&inner.expr)),
                    None => Transformed::no(node),
                })
            })?;
            resolved = changed.data;
        }
        map_columns(&resolved, |column| self.source.table_column(column))
    }

    fn input(&self, expression: &Arc<dyn PhysicalExpr>) -> Result<Input> {
        let (expression, positions, schema) = super::super::predicate::narrow_to_used_columns(expression, &self.arrow)?;
        let columns = positions.into_iter().map(ColumnIndex::from).collect();
        Ok(Input { expression, columns, schema, node: None, codes_of: None })
    }
}

fn is_decimal(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Decimal128(..))
}

/// Schema of the partial states of an aggregation, whatever its mode.
fn partial_schema(aggregate: &AggregateExec) -> Result<SchemaRef> {
    if *aggregate.mode() == AggregateMode::Partial {
        return Ok(aggregate.schema());
    }
    let partial = AggregateExec::try_new(
        AggregateMode::Partial,
        aggregate.group_expr().clone(),
        aggregate.aggr_expr().to_vec(),
        aggregate.filter_expr().to_vec(),
        Arc::clone(aggregate.input()),
        aggregate.input_schema(),
    )?;
    Ok(partial.schema())
}

/// Estimates the maximum number of groups in blocks, from the distinct values of each grouping key.
pub fn groups_estimate(table: &TautTable, keys: &[ColumnIndex]) -> f64 {
    let distinct = |column: &ColumnIndex| {
        table.stored().statistics.get(column.index()).map_or(f64::MAX, |known| known.distinct_estimate() as f64 + 1.0)
    };
    keys.iter().map(distinct).product()
}
