//! Records whose texts hold control characters: written before these were refused, by a server's log, or by hand.

use serde_json::Value;

use crate::foreign::visible;
use crate::store::Record;

/// The record with every control character in its texts escaped but line feeds and tabs: for terminals and tables,
/// which would obey them.
pub fn visible_record(record: &Record) -> Record {
    let shown = serde_json::to_value(record).and_then(|mut value| {
        make_visible(&mut value);
        serde_json::from_value(value)
    });
    // Better shown as it is than not at all.
    shown.unwrap_or_else(|_| record.clone())
}

fn make_visible(value: &mut Value) {
    match value {
        Value::String(text) => *text = visible(text).into_owned(),
        Value::Array(items) => items.iter_mut().for_each(make_visible),
        Value::Object(entries) => {
            let renamed = std::mem::take(entries).into_iter().map(|(key, mut value)| {
                make_visible(&mut value);
                (visible(&key).into_owned(), value)
            });
            entries.extend(renamed);
        }
        _ => {}
    }
}
