//! `nextval`, `currval`, `lastval` and `setval`.
//!
//! A call looks up the sequences of the session when it runs, in the configuration with which the statement was
//! planned. Therefore the functions also work in defaults, which are planned without a session.

use std::fmt::Debug;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

use crate::runtime::session_value::session_value;

/// The sequences of a database, as a session sees them.
pub trait Sequences: Debug + Send + Sync {
    /// Returns the next `count` numbers of a sequence and advances it.
    ///
    /// # Errors
    /// If the sequence does not exist or has too few numbers left, or if the database cannot be written.
    fn next_values(&self, name: &str, count: usize) -> Result<Vec<i64>>;

    /// Returns the last number of a sequence that `nextval` returned, or `setval` set, in this session.
    ///
    /// # Errors
    /// If the sequence does not exist, or the session has not called `nextval` or `setval` for it.
    fn current_value(&self, name: &str) -> Result<i64>;

    /// Returns the current value, as in `current_value`, of the sequence that this session used last.
    ///
    /// # Errors
    /// If the session has not called `nextval` or `setval` yet.
    fn last_value(&self) -> Result<i64>;

    /// Sets the last number of a sequence to `value`, so the number after it is the next one. If `is_called` is false,
    /// `value` itself is the next number, and the current value of the session does not change.
    ///
    /// # Errors
    /// If the sequence does not exist, if the number is not within its limits, or if the database cannot be written.
    fn set_value(&self, name: &str, value: i64, is_called: bool) -> Result<()>;
}

/// Access to the sequences of a session. It is stored in the session's configuration, but users cannot set it.
#[derive(Clone, Debug)]
pub struct SequenceAccess(pub Arc<dyn Sequences>);

session_value!(SequenceAccess, "sequences");

/// Adds the sequence functions to a session state.
pub fn with_sequences(state: SessionStateBuilder) -> SessionStateBuilder {
    let functions = SequenceCall::ALL.map(|call| Arc::new(ScalarUDF::new_from_impl(SequenceFunction::new(call))));
    let mut state = state;
    state.scalar_functions().get_or_insert_default().extend(functions);
    state
}

/// How the sequence functions in expressions depend on the order of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceUse {
    /// There are no calls of sequence functions.
    None,
    /// Each call gets numbers in row order. All numbers of a batch can be reserved at once.
    RowsInOrder,
    /// A call may depend on another call for the same row, so rows are computed one by one.
    RowByRow,
}

/// Finds the calls of sequence functions in expressions, and returns how they depend on the order of rows.
///
/// # Errors
/// If an expression cannot be traversed.
pub fn sequence_use<'a>(expressions: impl Iterator<Item = &'a Arc<dyn PhysicalExpr>>) -> Result<SequenceUse> {
    let mut calls: Vec<(SequenceCall, Option<String>)> = Vec::new();
    for expression in expressions {
        expression.apply(|part| {
            if let Some(function) = part.downcast_ref::<ScalarFunctionExpr>()
                && let Some(known) = function.fun().inner().downcast_ref::<SequenceFunction>()
            {
                let name = function.args().first().and_then(|name| name.downcast_ref::<Literal>());
                calls.push((known.call, name.map(|name| name.value().to_string())));
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    let takes_from_another = |(index, (call, name)): (usize, &(SequenceCall, Option<String>))| {
        *call == SequenceCall::Next && name.is_some() && calls[..index].iter().all(|(_, other)| other != name)
    };
    Ok(match calls.as_slice() {
        [] => SequenceUse::None,
        [_] => SequenceUse::RowsInOrder,
        _ if calls.iter().enumerate().all(takes_from_another) => SequenceUse::RowsInOrder,
        _ => SequenceUse::RowByRow,
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum SequenceCall {
    Next,
    Current,
    Last,
    Set,
}

impl SequenceCall {
    const ALL: [Self; 4] = [Self::Next, Self::Current, Self::Last, Self::Set];
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SequenceFunction {
    call: SequenceCall,
    signature: Signature,
}

impl SequenceFunction {
    fn new(call: SequenceCall) -> Self {
        let text = || TypeSignature::Exact(vec![DataType::Utf8]);
        let set = |flag: &[DataType]| TypeSignature::Exact([&[DataType::Utf8, DataType::Int64], flag].concat());
        let signature = match call {
            SequenceCall::Next | SequenceCall::Current => text(),
            SequenceCall::Last => TypeSignature::Nullary,
            SequenceCall::Set => TypeSignature::OneOf(vec![set(&[]), set(&[DataType::Boolean])]),
        };
        Self { call, signature: Signature::new(signature, Volatility::Volatile) }
    }

    fn value_of_row(&self, sequences: &dyn Sequences, columns: &[ArrayRef], row: usize) -> Result<Option<i64>> {
        if columns.iter().any(|column| column.is_null(row)) {
            return Ok(None);
        }
        let name = || columns[0].as_string::<i32>().value(row);
        Ok(Some(match self.call {
            SequenceCall::Next => match sequences.next_values(name(), 1)?.as_slice() {
                [number] => *number,
                _ => return internal_err!("a sequence gave another count of numbers"),
            },
            SequenceCall::Current => sequences.current_value(name())?,
            SequenceCall::Last => sequences.last_value()?,
            SequenceCall::Set => {
                let value = columns[1].as_primitive::<Int64Type>().value(row);
                let is_called = columns.get(2).is_none_or(|column| column.as_boolean().value(row));
                sequences.set_value(name(), value, is_called)?;
                value
            }
        }))
    }
}

impl ScalarUDFImpl for SequenceFunction {
    fn name(&self) -> &'static str {
        match self.call {
            SequenceCall::Next => "nextval",
            SequenceCall::Current => "currval",
            SequenceCall::Last => "lastval",
            SequenceCall::Set => "setval",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(SequenceAccess(sequences)) = args.config_options.extensions.get::<SequenceAccess>() else {
            return internal_err!("{} needs a session", self.name());
        };
        // Reserves the numbers of all rows at once if they come from one sequence.
        if let (SequenceCall::Next, [ColumnarValue::Scalar(name)]) = (self.call, args.args.as_slice())
            && let ScalarValue::Utf8(Some(name)) = name
        {
            let numbers = sequences.next_values(name, args.number_rows)?;
            return Ok(ColumnarValue::Array(Arc::new(Int64Array::from(numbers))));
        }
        let types = [DataType::Utf8, DataType::Int64, DataType::Boolean];
        let column = |(value, data_type): (&ColumnarValue, &DataType)| -> Result<ArrayRef> {
            Ok(cast(&value.to_array(args.number_rows)?, data_type)?)
        };
        let columns = args.args.iter().zip(&types).map(column).collect::<Result<Vec<_>>>()?;
        let rows = 0..args.number_rows;
        let values =
            rows.map(|row| self.value_of_row(sequences.as_ref(), &columns, row)).collect::<Result<Vec<_>>>()?;
        Ok(ColumnarValue::Array(Arc::new(Int64Array::from(values))))
    }
}
