//! Fast type inference for long chains of operators and deeply nested functions.
//!
//! To find the type of `a + b + c + ...`, DataFusion finds the type of everything before the last operator. It does so
//! again for each operator, so the time grows with the square of the length. The type of a cast is known without its
//! operand. Therefore this rule casts the value every few levels to the type that it has:
//!
//! ```text
//!   (((a + b) + c) + d) + e        (CAST((a + b) + c AS int) + d) + e
//! ```
//!
//! When DataFusion infers the type of a function, it also builds the name of the function, which contains the names of
//! all arguments. It does so at every level. Therefore this rule adds, every few levels, a function with a short name
//! that returns its argument:
//!
//! ```text
//!   f(f(f(f(a))))                  f(f(short_name(f(f(a)))))
//! ```
//!
//! An alias does not work, because filters remove it. The physical plan no longer has the casts.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;

/// Levels between two casts, and between two calls of `short_name`.
const LEVELS_PER_CAST: usize = 32;

/// Rule that adds the casts and the calls of `short_name`. It runs before all rules that need types.
#[derive(Debug, Default)]
pub struct LongExpressions;

impl AnalyzerRule for LongExpressions {
    fn name(&self) -> &str {
        "taut_long_expressions"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|node| {
            let mut is_long = false;
            node.apply_expressions(|expression| {
                is_long |= expression.exists(|part| Ok(is_long_chain(part)))?
                    || function_levels(expression)? >= LEVELS_PER_CAST;
                Ok(if is_long { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
            })?;
            if !is_long {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            let names = NamePreserver::new(&node);
            node.map_expressions(|expression| {
                let name = names.save(&expression);
                Ok(Transformed::yes(name.restore(with_casts(expression, &schema)?)))
            })
        })?;
        Ok(changed.data)
    }
}

/// Whether an expression is a chain of at least [`LEVELS_PER_CAST`] operators. In a chain, each operator is the first
/// operand of the operator above it, or each is the last operand.
fn is_long_chain(expression: &Expr) -> bool {
    has_levels(expression, |binary| &binary.left) || has_levels(expression, |binary| &binary.right)
}

fn has_levels(expression: &Expr, side: fn(&BinaryExpr) -> &Expr) -> bool {
    let mut level = expression;
    for _ in 0..LEVELS_PER_CAST {
        level = match level {
            Expr::BinaryExpr(binary) if is_computation(level) => side(binary),
            Expr::Negative(inner) => inner,
            _ => return false,
        };
    }
    true
}

/// Maximum nesting depth of functions in an expression.
fn function_levels(expression: &Expr) -> Result<usize> {
    let mut levels = 0;
    expression.apply_children(|child| {
        levels = levels.max(function_levels(child)?);
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(levels + usize::from(matches!(expression, Expr::ScalarFunction(_))))
}

/// Whether an expression is an operator that computes a value. False for conditions: other rules split them, and their
/// type is always the same.
fn is_computation(expression: &Expr) -> bool {
    let operator = match expression {
        Expr::Negative(_) => return true,
        Expr::BinaryExpr(binary) => binary.op,
        _ => return false,
    };
    operator.is_numerical_operators()
        || matches!(
            operator,
            Operator::StringConcat
                | Operator::BitwiseAnd
                | Operator::BitwiseOr
                | Operator::BitwiseXor
                | Operator::BitwiseShiftLeft
                | Operator::BitwiseShiftRight
        )
}

/// State of a subexpression, used when its parent is visited.
#[derive(Clone, Copy, Default)]
struct SubexpressionState {
    /// Levels down to the next cast.
    levels: usize,
    /// Functions down to the next call of `short_name`.
    functions: usize,
    /// Whether the type depends on a parameter whose type is not known yet.
    has_untyped_parameter: bool,
}

/// Adds a cast or a call of `short_name` every few levels of an expression.
fn with_casts(expression: Expr, schema: &DFSchema) -> Result<Expr> {
    let mut visited: Vec<SubexpressionState> = Vec::new();
    let cast = expression.transform_up(|part| {
        let mut children = 0;
        part.apply_children(|_| {
            children += 1;
            Ok(TreeNodeRecursion::Continue)
        })?;
        let mut state = SubexpressionState::default();
        for child in visited.drain(visited.len().saturating_sub(children)..) {
            state = SubexpressionState {
                levels: state.levels.max(child.levels),
                functions: state.functions.max(child.functions),
                has_untyped_parameter: state.has_untyped_parameter || child.has_untyped_parameter,
            };
        }
        state.levels += 1;
        state.functions += usize::from(matches!(part, Expr::ScalarFunction(_)));
        state.has_untyped_parameter |= matches!(&part, Expr::Placeholder(placeholder) if placeholder.field.is_none());
        let is_due = state.levels >= LEVELS_PER_CAST && !state.has_untyped_parameter;
        if is_due
            && is_computation(&part)
            && let Ok(data_type) = part.get_type(schema)
            && data_type != DataType::Null
        {
            visited.push(SubexpressionState::default());
            return Ok(Transformed::yes(Expr::Cast(Cast::new(Box::new(part), data_type))));
        }
        if state.functions >= LEVELS_PER_CAST && matches!(part, Expr::ScalarFunction(_)) {
            visited.push(SubexpressionState { functions: 0, ..state });
            let short = ScalarUDF::new_from_impl(ShortName::for_argument(&part));
            return Ok(Transformed::yes(short.call(vec![part])));
        }
        visited.push(state);
        Ok(Transformed::no(part))
    })?;
    Ok(cast.data)
}

/// Function that returns its argument. Its name does not contain the name of the argument.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ShortName {
    /// A hash of the argument: calls with equal arguments have equal names, and other calls have different names.
    schema_name: String,
    signature: Signature,
}

impl ShortName {
    fn for_argument(argument: &Expr) -> Self {
        let mut hasher = DefaultHasher::new();
        argument.hash(&mut hasher);
        let schema_name = format!("short_name_{:x}", hasher.finish());
        Self { schema_name, signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for ShortName {
    fn name(&self) -> &'static str {
        "short_name"
    }

    fn schema_name(&self, _args: &[Expr]) -> Result<String> {
        Ok(self.schema_name.clone())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        Ok(arg_types[0].clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::clone(&args.arg_fields[0]))
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(args.args.swap_remove(0))
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        Ok(inputs[0].sort_properties)
    }
}
