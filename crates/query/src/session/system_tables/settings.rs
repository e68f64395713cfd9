//! `taut.settings`: one row for each setting of Taut.

use taut_sql::Setting;

use super::{SystemColumn, SystemRows, SystemState, SystemTable, texts};

pub(super) const TABLE: SystemTable = SystemTable {
    name: "settings",
    description: "The settings of Taut, with their values in this session.",
    columns: &[
        SystemColumn::text("name", "Name in `SET` and `SHOW`."),
        SystemColumn::text("setting", "Current value."),
        SystemColumn::text("allowed", "Allowed values."),
        SystemColumn::text("default", "Value of a new session; null if it cannot be reset."),
        SystemColumn::text("scope", "Scope of the value: `session`, `transaction` or `database`."),
        SystemColumn::text("description", "Meaning of the setting."),
    ],
    rows,
};

fn rows(state: &SystemState) -> SystemRows {
    let all = || Setting::ALL.into_iter();
    let info = |of: fn(Setting) -> Option<&'static str>| texts(all().map(|setting| of(setting).map(str::to_owned)));
    let columns = vec![
        info(|setting| Some(setting.name())),
        texts(all().map(|setting| Some(state.settings.value(setting)))),
        info(|setting| Some(setting.info().values)),
        info(|setting| setting.info().default),
        info(|setting| Some(setting.info().scope)),
        info(|setting| Some(setting.info().description)),
    ];
    Box::new(std::iter::once(Ok(columns)))
}
