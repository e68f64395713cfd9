//! `normalize(text [, form])` and `is_normalized(text [, form])`: Unicode normalization. `taut_sql` turns the form,
//! which is a keyword in SQL, into a string.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, StringViewArray};
use datafusion::common::{Result, exec_err};
use icu_normalizer::{ComposingNormalizerBorrowed, DecomposingNormalizerBorrowed};

use super::definition::ArgumentType::Text;
use super::definition::{Definition, booleans, complete_rows, result, texts};

pub(super) const FUNCTIONS: [Definition; 2] = [
    Definition { name: "normalize", arguments: &[&[Text], &[Text, Text]], result: result::text, compute: normalized },
    Definition {
        name: "is_normalized",
        arguments: &[&[Text], &[Text, Text]],
        result: result::boolean,
        compute: is_normalized,
    },
];

/// A normalization form.
enum Form {
    /// NFC and NFKC.
    Composed(ComposingNormalizerBorrowed<'static>),
    /// NFD and NFKD.
    Decomposed(DecomposingNormalizerBorrowed<'static>),
}

impl Form {
    fn parse(name: &str) -> Result<Self> {
        Ok(match name.to_ascii_uppercase().as_str() {
            "NFC" => Self::Composed(ComposingNormalizerBorrowed::new_nfc()),
            "NFKC" => Self::Composed(ComposingNormalizerBorrowed::new_nfkc()),
            "NFD" => Self::Decomposed(DecomposingNormalizerBorrowed::new_nfd()),
            "NFKD" => Self::Decomposed(DecomposingNormalizerBorrowed::new_nfkd()),
            _ => return exec_err!("invalid normalization form: {name}"),
        })
    }

    /// Returns the form of a row, which is NFC if the call names none.
    fn of_row(arguments: &[ArrayRef], row: usize) -> Result<Self> {
        Self::parse(arguments.get(1).map_or("NFC", |forms| texts(forms).value(row)))
    }
}

fn normalized(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let results = complete_rows(arguments).map(|row| {
        let Some(row) = row else { return Ok(None) };
        let text = texts(&arguments[0]).value(row);
        Ok(Some(match Form::of_row(arguments, row)? {
            Form::Composed(form) => form.normalize(text),
            Form::Decomposed(form) => form.normalize(text),
        }))
    });
    Ok(Arc::new(results.collect::<Result<StringViewArray>>()?))
}

fn is_normalized(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let results = complete_rows(arguments).map(|row| {
        let Some(row) = row else { return Ok(None) };
        let text = texts(&arguments[0]).value(row);
        Ok(Some(match Form::of_row(arguments, row)? {
            Form::Composed(form) => form.is_normalized(text),
            Form::Decomposed(form) => form.is_normalized(text),
        }))
    });
    Ok(booleans(results.collect::<Result<Vec<_>>>()?.into_iter()))
}
