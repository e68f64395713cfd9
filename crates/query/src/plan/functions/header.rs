//! Names and parameters of functions in SQL, and the arguments of calls.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::{Column, DFSchema, DataFusionError, Result, ScalarValue, internal_err};
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::{Expr, ExprSchemable, lit, when};

use super::external;
use super::types::{as_type, is_implicit};
use crate::error::{FunctionError, type_in_message};

/// Name and parameters of a function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Header {
    /// Name that is unique among the functions of a statement.
    pub(super) name: String,
    /// Name of the function in messages.
    pub(super) shown_name: String,
    pub(super) parameters: Vec<PlannedParameter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PlannedParameter {
    pub(super) column: Column,
    pub(super) data_type: DataType,
    pub(super) default: Option<Expr>,
}

impl Header {
    /// Checks the types of the arguments of a call, each with whether the argument is a literal.
    pub(super) fn check(&self, arguments: &[(&DataType, bool)]) -> Result<()> {
        let matches = arguments.iter().zip(&self.parameters).all(|((from, is_literal), parameter)| {
            // A text literal takes the type of the parameter.
            from.is_string() && *is_literal || is_implicit(from, &parameter.data_type)
        });
        match self.parameters.get(arguments.len()..) {
            Some(omitted) if matches && omitted.iter().all(|parameter| parameter.default.is_some()) => Ok(()),
            _ => {
                let types: Vec<String> = arguments.iter().map(|(data_type, _)| type_in_message(data_type)).collect();
                let (name, types) = (self.shown_name.clone(), types.join(", "));
                Err(external(FunctionError::NoMatch { name, types }))
            }
        }
    }

    /// The arguments of a call as values of the parameters. `schema` has the columns of the arguments.
    pub(super) fn values(&self, arguments: Vec<Expr>, schema: &DFSchema) -> Result<Vec<Expr>> {
        let arguments = arguments.into_iter().map(Some).chain(std::iter::repeat(None)).zip(&self.parameters);
        let value = |(argument, parameter): (Option<Expr>, &PlannedParameter)| match (argument, &parameter.default) {
            (Some(Expr::Placeholder(Placeholder { id, field: None })), _) => {
                let field = Some(Arc::new(Field::new(&id, parameter.data_type.clone(), true)));
                Ok(Expr::Placeholder(Placeholder { id, field }))
            }
            (Some(argument), _) => {
                let from = argument.get_type(schema)?;
                Ok(as_type(argument, &from, &parameter.data_type))
            }
            (None, Some(default)) => Ok(default.clone()),
            (None, None) => internal_err!("a call of function {} lacks an argument", self.shown_name),
        };
        arguments.map(value).collect()
    }

    /// The value of a parameter in a call.
    pub(super) fn value_of<'a>(&self, column: &Column, values: &'a [Expr]) -> Option<&'a Expr> {
        values.get(self.parameters.iter().position(|parameter| parameter.column == *column)?)
    }

    /// Whether an argument is null. `None` without parameters.
    pub(super) fn has_null_argument(&self) -> Option<Expr> {
        let argument = |parameter: &PlannedParameter| {
            let field = Arc::new(Field::new(&parameter.column.name, parameter.data_type.clone(), true));
            Expr::OuterReferenceColumn(field, parameter.column.clone())
        };
        self.parameters.iter().map(|parameter| argument(parameter).is_null()).reduce(Expr::or)
    }

    /// A result that is null if an argument is null.
    pub(super) fn strict(&self, result: Expr, result_type: &DataType) -> Result<Expr> {
        match self.has_null_argument() {
            Some(has_null) => when(has_null, lit(ScalarValue::try_from(result_type)?)).otherwise(result),
            None => Ok(result),
        }
    }

    pub(super) fn volatile(&self, parameter: &PlannedParameter) -> DataFusionError {
        let (name, parameter) = (self.shown_name.clone(), parameter.column.name.clone());
        external(FunctionError::VolatileArgument { name, parameter })
    }
}
