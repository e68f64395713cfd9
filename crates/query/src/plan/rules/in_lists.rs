//! Conditions with several lists for one operand, such as `x IN (1, 2) AND x IN (3, 4)`.
//!
//! DataFusion merges these lists. The merged condition can be false where SQL returns null (for a null operand) or true
//! (for lists of columns):
//!
//! ```text
//!   x IN (1, 2) AND x IN (3, 4)    merged to false     null if x is null
//!   a IN (b) AND a IN (c)          merged to false     true if all three are equal
//! ```
//!
//! Therefore, while DataFusion simplifies expressions, these lists are replaced by calls of a function that it does not
//! know.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::expr::{InList, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, LogicalPlan, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// DataFusion's simplification of expressions, with lists hidden that it would merge.
#[derive(Debug)]
pub struct UnmergedInLists(pub Arc<dyn OptimizerRule + Send + Sync>);

impl OptimizerRule for UnmergedInLists {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let mut has_merged = false;
        plan.apply_expressions(|expression| {
            has_merged |= would_merge(expression)?;
            Ok(if has_merged { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        if !has_merged {
            return self.0.rewrite(plan, config);
        }
        let hidden = with_expressions(plan, hide)?;
        let simplified = self.0.rewrite(hidden, config)?;
        Ok(Transformed::new(with_expressions(simplified.data, show)?, simplified.transformed, simplified.tnr))
    }
}

fn with_expressions(plan: LogicalPlan, replace: fn(Expr) -> Result<Transformed<Expr>>) -> Result<LogicalPlan> {
    let names = NamePreserver::new(&plan);
    let replaced = plan.map_expressions(|expression| {
        let name = names.save(&expression);
        Ok(expression.transform_up(replace)?.update_data(|expression| name.restore(expression)))
    })?;
    Ok(replaced.data)
}

/// Whether an expression has lists for one operand that DataFusion would merge: all but lists under `OR` without `NOT`.
fn would_merge(expression: &Expr) -> Result<bool> {
    expression.exists(|part| {
        let Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) = part else {
            return Ok(false);
        };
        let (left, right) = (Lists::of(left)?, Lists::of(right)?);
        let is_merged = *op == Operator::And || left.has_not || right.has_not;
        Ok(is_merged && !left.operands.is_disjoint(&right.operands))
    })
}

/// Lists in an expression.
#[derive(Default)]
struct Lists<'a> {
    operands: HashSet<&'a Expr>,
    has_not: bool,
}

impl<'a> Lists<'a> {
    fn of(expression: &'a Expr) -> Result<Self> {
        let mut lists = Self::default();
        expression.apply(|part| {
            match part {
                Expr::InList(list) => {
                    lists.has_not |= list.negated;
                    lists.operands.insert(uncast(&list.expr));
                }
                Expr::Not(_) => lists.has_not = true,
                part => lists.operands.extend(as_single(part)),
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(lists)
    }
}

/// The column of `column = literal`, which DataFusion turns into a list under `OR`.
fn as_single(expression: &Expr) -> Option<&Expr> {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = expression else { return None };
    match (uncast(left), uncast(right)) {
        (column @ Expr::Column(_), Expr::Literal(..)) | (Expr::Literal(..), column @ Expr::Column(_)) => Some(column),
        _ => None,
    }
}

/// An operand without its cast. DataFusion moves the cast of an operand to the literals that it is compared with.
fn uncast(operand: &Expr) -> &Expr {
    match operand {
        Expr::Cast(cast) => uncast(&cast.expr),
        operand => operand,
    }
}

static HIDDEN: LazyLock<[Arc<ScalarUDF>; 2]> = LazyLock::new(|| {
    [false, true].map(|negated| {
        let signature = Signature::variadic_any(Volatility::Volatile);
        Arc::new(ScalarUDF::new_from_impl(HiddenList { negated, signature }))
    })
});

fn hidden(operands: Vec<Expr>, negated: bool) -> Transformed<Expr> {
    let function = Arc::clone(&HIDDEN[usize::from(negated)]);
    Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(function, operands)))
}

fn hide(expression: Expr) -> Result<Transformed<Expr>> {
    let is_single = as_single(&expression).is_some();
    Ok(match expression {
        Expr::BinaryExpr(BinaryExpr { left, right, .. }) if is_single => hidden(vec![*left, *right], false),
        Expr::InList(InList { expr, mut list, negated }) => {
            list.insert(0, *expr);
            hidden(list, negated)
        }
        other => Transformed::no(other),
    })
}

fn show(expression: Expr) -> Result<Transformed<Expr>> {
    Ok(match expression {
        Expr::ScalarFunction(ScalarFunction { func, mut args }) if func.inner().is::<HiddenList>() => {
            let negated = func.name() == HIDDEN[1].name();
            let operand = args.remove(0);
            Transformed::yes(match (args.as_slice(), negated) {
                ([_], false) => operand.eq(args.remove(0)),
                _ => Expr::InList(InList { expr: Box::new(operand), list: args, negated }),
            })
        }
        other => Transformed::no(other),
    })
}

/// Function that replaces a list while DataFusion simplifies expressions. It is volatile, so that it is not evaluated.
#[derive(Debug, PartialEq, Eq, Hash)]
struct HiddenList {
    negated: bool,
    signature: Signature,
}

impl ScalarUDFImpl for HiddenList {
    fn name(&self) -> &str {
        if self.negated { "not_in_list" } else { "in_list" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        internal_err!("{} is replaced before execution", self.name())
    }
}
