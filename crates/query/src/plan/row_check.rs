//! The check of the rows that `INSERT ... ON CONFLICT` is to insert. It also applies to rows that are then not
//! inserted, because they conflict.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{Result, exec_err, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use taut_sql::CHECK_ROW;

use crate::write::coerce::{Coercion, exact_cast};

/// The function [`CHECK_ROW`] of one table.
#[derive(Debug)]
pub struct RowCheck {
    /// Columns of the table, all of them nullable.
    columns: SchemaRef,
    coercion: Arc<Coercion>,
    signature: Signature,
}

impl RowCheck {
    /// Creates the function. `coercion` is the conversion from `columns` to the table.
    pub fn udf(columns: SchemaRef, coercion: Arc<Coercion>) -> ScalarUDF {
        // Not immutable: the call must stay where the statement has it, even if its result is not needed.
        let signature = Signature::variadic_any(Volatility::Volatile);
        ScalarUDF::new_from_impl(Self { columns, coercion, signature })
    }
}

impl PartialEq for RowCheck {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.coercion, &other.coercion)
    }
}

impl Eq for RowCheck {}

impl Hash for RowCheck {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.coercion).hash(state);
    }
}

impl ScalarUDFImpl for RowCheck {
    fn name(&self) -> &str {
        CHECK_ROW
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types {
            [value, row @ ..] if row.len() == self.columns.fields().len() => Ok(value.clone()),
            _ => exec_err!("the check of a row takes a value and {} columns", self.columns.fields().len()),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        Ok(Arc::new(Field::new(CHECK_ROW, self.return_type(&types)?, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some((value, row)) = args.args.split_first() else { return internal_err!("a check without a row") };
        let column = |(value, field): (&ColumnarValue, &FieldRef)| -> Result<ArrayRef> {
            let array = value.to_array(args.number_rows)?;
            match array.data_type() == field.data_type() {
                true => Ok(array),
                false => Ok(exact_cast(&array, field.data_type())?),
            }
        };
        let columns = row.iter().zip(self.columns.fields()).map(column).collect::<Result<_>>()?;
        self.coercion.coerce(&RecordBatch::try_new(Arc::clone(&self.columns), columns)?)?;
        Ok(value.clone())
    }
}
