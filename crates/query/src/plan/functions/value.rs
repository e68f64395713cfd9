//! Functions in SQL that return one value.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, EmptyRelation, Expr, LogicalPlan, LogicalPlanBuilder, Projection, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDFImpl, Signature, Subquery, Values,
};

use super::external;
use super::header::{Header, PlannedParameter};
use super::subqueries::{outer, replaced_columns, subquery_of, with_subquery};
use super::types::{as_type, checked_columns};
use crate::error::FunctionError;

/// Maximum number of operators, columns and constants in the body of a function with its arguments. A statement with as
/// many is planned in seconds.
const PARTS_MAX: usize = 10_000;

/// A function in SQL. A statement with its calls cannot be executed: their bodies replace them.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct SqlFunction {
    pub(super) header: Header,
    /// The result, in which parameters are outer columns. `None` for a function that returns rows.
    pub(super) result: Option<Expr>,
    pub(super) result_type: DataType,
    pub(super) signature: Signature,
}

/// Returns the value of the body as a value of the result: the expression of a body without `FROM`, or the first row of
/// the query.
pub(super) fn single_value(body: Subquery, result_type: &DataType) -> Result<Expr> {
    let types = checked_columns(body.subquery.schema(), std::slice::from_ref(result_type))?;
    let value = first_value(body)?;
    Ok(types.first().map_or(value.clone(), |from| as_type(value, from, result_type)))
}

fn first_value(subquery: Subquery) -> Result<Expr> {
    // Rows of VALUES are in order, but no sort says so.
    let first = subquery.subquery.as_ref().clone().transform_down(|node| {
        Ok(match node {
            LogicalPlan::Values(Values { schema, mut values }) => {
                values.truncate(1);
                let node = LogicalPlan::Values(Values { schema, values });
                Transformed::new(node, true, TreeNodeRecursion::Stop)
            }
            LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) => Transformed::no(node),
            _ => Transformed::new(node, false, TreeNodeRecursion::Stop),
        })
    })?;
    let subquery = subquery.with_plan(Arc::new(first.data));
    let plan = subquery.subquery.as_ref();
    if let LogicalPlan::Projection(Projection { expr, input, .. }) = plan
        && let LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: true, .. }) = input.as_ref()
        && let [value] = expr.as_slice()
    {
        return Ok(value.clone().unalias());
    }
    if plan.max_rows().is_some_and(|rows| rows <= 1) {
        return Ok(Expr::ScalarSubquery(subquery));
    }
    let first = LogicalPlanBuilder::from(plan.clone()).limit(0, Some(1))?.build()?;
    Ok(Expr::ScalarSubquery(subquery.with_plan(Arc::new(first))))
}

impl ScalarUDFImpl for SqlFunction {
    fn name(&self) -> &str {
        &self.header.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(self.result_type.clone())
    }

    /// Accepts all types. [`Header::check`] also knows which arguments are literals.
    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        Ok(arg_types.to_vec())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        if self.result.is_none() {
            return Err(external(FunctionError::Rows { name: self.header.shown_name.clone() }));
        }
        let is_literal = |index: usize| args.scalar_arguments.get(index).is_some_and(Option::is_some);
        let types = args.arg_fields.iter().enumerate().map(|(index, field)| (field.data_type(), is_literal(index)));
        self.header.check(&types.collect::<Vec<_>>())?;
        Ok(Arc::new(Field::new(&self.header.shown_name, self.result_type.clone(), true)))
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        internal_err!("function {} was not replaced by its body", self.header.shown_name)
    }
}

impl SqlFunction {
    /// The result for the arguments of a call. `schema` has the columns of the arguments.
    pub(super) fn result_of(&self, arguments: Vec<Expr>, schema: &DFSchema) -> Result<Expr> {
        let values = self.header.values(arguments, schema)?;
        let Some(result) = &self.result else {
            return Err(external(FunctionError::Rows { name: self.header.shown_name.clone() }));
        };
        for (value, parameter) in values.iter().zip(&self.header.parameters) {
            if value.is_volatile() && uses(result, parameter)? != (1, 0) {
                return Err(self.header.volatile(parameter));
            }
        }
        self.check_relations(result, &values)?;
        let value_of = |column: &Column| self.header.value_of(column, &values);
        let result = result.clone().transform_up(|part| match part {
            Expr::OuterReferenceColumn(field, column) => Ok(match value_of(&column) {
                Some(value) => Transformed::yes(value.clone()),
                None => Transformed::no(Expr::OuterReferenceColumn(field, column)),
            }),
            other => with_subquery(other, &|plan| {
                let changed = plan.transform_up_with_subqueries(|node| {
                    replaced_columns(node, &|column| value_of(column).map(|value| outer(value, schema)))
                })?;
                Ok(changed.data)
            }),
        })?;
        self.check_size(&result.data)?;
        Ok(result.data)
    }

    /// Checks that the result for the arguments of a call is not too large. Each function that repeats a parameter
    /// doubles the size of an argument in which such functions are nested.
    fn check_size(&self, result: &Expr) -> Result<()> {
        let mut parts = 0;
        result.apply(|_| {
            parts += 1;
            Ok(if parts > PARTS_MAX { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        match parts > PARTS_MAX {
            true => Err(external(FunctionError::Size { name: self.header.shown_name.clone(), parts: PARTS_MAX })),
            false => Ok(()),
        }
    }

    /// Checks that no relation of the body captures a column of an argument. The name of an outer column in a nested
    /// subquery would refer to the innermost relation of this name.
    fn check_relations(&self, result: &Expr, values: &[Expr]) -> Result<()> {
        let (mut of_body, mut has_nested) = (BTreeSet::new(), false);
        result.apply(|part| {
            if let Some(subquery) = subquery_of(part) {
                subquery.subquery.apply_with_subqueries(|node| {
                    of_body.extend(node.schema().iter().filter_map(|(relation, _)| relation.cloned()));
                    has_nested |= matches!(node, LogicalPlan::Subquery(_));
                    node.apply_expressions(|expression| {
                        has_nested |= expression.exists(|part| Ok(subquery_of(part).is_some()))?;
                        Ok(TreeNodeRecursion::Continue)
                    })
                })?;
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        for (value, parameter) in values.iter().zip(&self.header.parameters) {
            let mut named: Vec<Column> = value.column_refs().into_iter().cloned().collect();
            let mut has_subquery = false;
            value.apply(|part| {
                if let Some(subquery) = subquery_of(part) {
                    has_subquery = true;
                    named.extend(subquery.outer_ref_columns.iter().filter_map(|outer| match outer {
                        Expr::OuterReferenceColumn(_, column) => Some(column.clone()),
                        _ => None,
                    }));
                }
                if let Expr::OuterReferenceColumn(_, column) = part {
                    named.push(column.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
            let mut relations = named.iter().filter_map(|column| column.relation.as_ref());
            if (has_nested || has_subquery)
                && let Some(relation) = relations.find(|relation| of_body.contains(*relation))
            {
                let (name, parameter) = (self.header.shown_name.clone(), parameter.column.name.clone());
                let relation = relation.table().to_owned();
                return Err(external(FunctionError::Captured { name, parameter, relation }));
            }
        }
        Ok(())
    }
}

/// Number of times that a result uses a parameter outside and inside of subqueries.
fn uses(result: &Expr, parameter: &PlannedParameter) -> Result<(usize, usize)> {
    let is_use = |part: &Expr| matches!(part, Expr::OuterReferenceColumn(_, column) if *column == parameter.column);
    let (mut outside, mut inside) = (0, 0);
    result.apply(|part| {
        outside += usize::from(is_use(part));
        if let Some(subquery) = subquery_of(part) {
            inside += subquery.outer_ref_columns.iter().filter(|part| is_use(part)).count();
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok((outside, inside))
}
