//! Casts between text and arrays, in PostgreSQL's syntax.
//!
//! ```text
//!   {1,2,NULL}      {"a b","c\"d",""}      {{1,2},{3,4}}
//! ```
//!
//! The type determines the nesting depth of a literal. In PostgreSQL, an `integer[]` can have any number of dimensions.

mod literal;

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, GenericListArray, ListArray, OffsetSizeTrait, StringArray, StringViewArray,
    StringViewBuilder, new_empty_array,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::arrow::error::ArrowError;

use super::texts::write_texts;
use super::{bytes, dates, floats};
use literal::Literal;

/// Whether a cast between two types reads or writes the text of an array.
pub(super) fn is_array_cast(from: &DataType, target: &DataType) -> bool {
    (dates::is_text(from) && is_array(target)) || (is_array(from) && dates::is_text(target))
}

/// Whether a type is an array.
pub(super) fn is_array(data_type: &DataType) -> bool {
    matches!(data_type, DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..))
}

/// Element fields of a nested array type, outermost first.
fn levels(array: &DataType) -> Vec<&FieldRef> {
    let mut levels = Vec::new();
    let mut element = array;
    while let DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) = element {
        levels.push(field);
        element = field.data_type();
    }
    levels
}

/// Parses strings as arrays. With `is_try`, a string that is not an array of the type becomes null.
///
/// # Errors
/// If a string is not an array of the type, unless `is_try`.
pub(super) fn read(texts: &ArrayRef, target: &DataType, is_try: bool) -> Result<ArrayRef, ArrowError> {
    let levels = levels(target);
    let texts = cast(texts, &DataType::Utf8View)?;
    let mut literals = Vec::with_capacity(texts.len());
    for text in texts.as_string_view() {
        literals.push(match text.map(|text| Literal::parse(text, levels.len())) {
            None => None,
            Some(Err(_)) if is_try => None,
            Some(literal) => Some(literal?),
        });
    }
    let elements = literals.iter().flatten().flat_map(|literal| &literal.elements);
    let elements: ArrayRef = Arc::new(StringArray::from_iter(elements.map(Option::as_deref)));
    let mut values = match levels.last() {
        Some(field) => read_elements(&elements, field.data_type(), is_try)?,
        None => new_empty_array(target),
    };
    for (level, field) in levels.iter().enumerate().rev() {
        let (lengths, nulls) = if level == 0 {
            let lengths = literals.iter().map(|literal| literal.as_ref().map_or(0, |literal| literal.lengths(0)[0]));
            (lengths.collect::<Vec<_>>(), Some(NullBuffer::from_iter(literals.iter().map(Option::is_some))))
        } else {
            (literals.iter().flatten().flat_map(|literal| literal.lengths(level)).collect(), None)
        };
        let field = Arc::new(field.as_ref().clone().with_data_type(values.data_type().clone()));
        values = Arc::new(ListArray::try_new(field, OffsetBuffer::from_lengths(lengths), values, nulls)?);
    }
    cast_with_options(&values, target, &CastOptions { safe: is_try, ..CastOptions::default() })
}

fn read_elements(texts: &ArrayRef, target: &DataType, is_try: bool) -> Result<ArrayRef, ArrowError> {
    match target {
        target if dates::is_temporal(target) => dates::read(texts, target, is_try),
        target if floats::is_float(target) => floats::read(texts, target, is_try),
        target if bytes::is_bytes(target) => bytes::read(texts, target, is_try),
        target => cast_with_options(texts, target, &CastOptions { safe: is_try, ..CastOptions::default() }),
    }
}

/// Writes arrays as text.
///
/// # Errors
/// If an element cannot be written as text, such as a date out of range.
pub(super) fn write(arrays: &ArrayRef, target: &DataType) -> Result<ArrayRef, ArrowError> {
    let arrays = match arrays.data_type() {
        DataType::FixedSizeList(field, _) => &cast(arrays, &DataType::List(Arc::clone(field)))?,
        _ => arrays,
    };
    let texts: ArrayRef = match arrays.data_type() {
        DataType::LargeList(_) => Arc::new(write_lists(arrays.as_list::<i64>())?),
        _ => Arc::new(write_lists(arrays.as_list::<i32>())?),
    };
    cast(&texts, target)
}

fn write_lists<O: OffsetSizeTrait>(lists: &GenericListArray<O>) -> Result<StringViewArray, ArrowError> {
    let elements = lists.values();
    // Elements that are arrays are not quoted. Booleans in arrays are written with one letter.
    let is_nested = is_array(elements.data_type());
    let is_boolean = elements.data_type() == &DataType::Boolean;
    let texts = write_texts(elements)?;
    let texts = texts.as_string_view();
    let mut written = StringViewBuilder::with_capacity(lists.len());
    for (row, bounds) in lists.value_offsets().windows(2).enumerate() {
        if lists.is_null(row) {
            written.append_null();
            continue;
        }
        let mut text = String::from("{");
        for index in bounds[0].as_usize()..bounds[1].as_usize() {
            if text.len() > 1 {
                text.push(',');
            }
            match texts.is_valid(index).then(|| texts.value(index)) {
                None => text.push_str("NULL"),
                Some(element) if is_nested => text.push_str(element),
                Some(element) if is_boolean => text.push_str(&element[..1]),
                Some(element) => push_element(element, &mut text),
            }
        }
        text.push('}');
        written.append_value(text);
    }
    Ok(written.finish())
}

/// Appends an element. Quotes it if it is empty, equals `null`, or contains special characters.
fn push_element(element: &str, text: &mut String) {
    let is_special = |byte: u8| literal::is_space(byte) || matches!(byte, b'"' | b'\\' | b'{' | b'}' | b',');
    if !element.is_empty() && !element.eq_ignore_ascii_case("null") && !element.bytes().any(is_special) {
        text.push_str(element);
        return;
    }
    text.push('"');
    for character in element.chars() {
        if matches!(character, '"' | '\\') {
            text.push('\\');
        }
        text.push(character);
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::Field;

    use super::*;

    fn list_of(element: DataType) -> DataType {
        DataType::List(Arc::new(Field::new_list_field(element, true)))
    }

    fn written_again(text: &str, target: &DataType) -> Result<String, ArrowError> {
        let texts: ArrayRef = Arc::new(StringArray::from(vec![None, Some(text)]));
        let arrays = read(&texts, target, false)?;
        assert_eq!((arrays.data_type(), arrays.is_null(0)), (target, true));
        Ok(write(&arrays, &DataType::Utf8)?.as_string::<i32>().value(1).to_owned())
    }

    #[test]
    fn literals_are_read_and_written() {
        let text = list_of(DataType::Utf8);
        for (literal, expected) in [
            (r"{a,b}", r"{a,b}"),
            (
                r#"{ a , b c , "x y" , NULL, "NULL", null , "a\"b\\c", a\,b , c\  }"#,
                r#"{a,"b c","x y",NULL,"NULL",NULL,"a\"b\\c","a,b","c "}"#,
            ),
            (" { } ", "{}"),
            (r#"{""}"#, r#"{""}"#),
        ] {
            assert_eq!(written_again(literal, &text).unwrap(), expected, "{literal}");
        }
        let integers = list_of(DataType::Int32);
        assert_eq!(written_again("{1, 2,NULL}", &integers).unwrap(), "{1,2,NULL}");
        assert_eq!(written_again(" {{1,2},{3,4}}", &list_of(integers.clone())).unwrap(), "{{1,2},{3,4}}");
        assert_eq!(written_again("{}", &list_of(integers)).unwrap(), "{}");
        assert_eq!(written_again("{t,no}", &list_of(DataType::Boolean)).unwrap(), "{t,f}");
        assert_eq!(written_again(r#"{"\\x00ff"}"#, &list_of(DataType::Binary)).unwrap(), r#"{"\\x00ff"}"#);
        assert_eq!(written_again("{2024-1-5}", &list_of(DataType::Date32)).unwrap(), "{2024-01-05}");
        assert!(written_again("{1,x}", &list_of(DataType::Int32)).is_err());
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["{1", "{1,x}", "{2}"]));
        let tried = read(&texts, &list_of(DataType::Int32), true).unwrap();
        assert_eq!(
            write(&tried, &DataType::Utf8View).unwrap().as_string_view().iter().collect::<Vec<_>>(),
            [None, Some("{1,NULL}"), Some("{2}")]
        );
    }
}
