//! The project's arithmetic against published numbers: every row of `data/reference_pairs.csv` names a formula, its
//! inputs, what it gives and what the paper printed. Another file of the same columns is read when
//! `TLSDYNO_REFERENCE_PAIRS` names one.
//!
//! `values` are the inputs in the order of `variables` (shares as fractions), `computed` is what the formula gives (per
//! cent where `unit` is %), `agreement` how that relates to `published`: the papers round some numbers, truncate
//! others, and got a few wrong.

use std::collections::HashMap;
use std::path::PathBuf;

use tlsdyno::stats::papers;

/// One line of the file by column name.
type Row = HashMap<String, String>;

#[test]
fn every_published_pair_follows_from_the_projects_arithmetic() {
    let path = reference_pairs();
    let text =
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("failed to read {}: {error}", path.display()));
    let rows = parse(&text);
    assert!(!rows.is_empty(), "{} has no rows", path.display());
    let faults: Vec<String> =
        rows.iter().filter_map(|row| check(row).err().map(|fault| format!("{}: {fault}", row["id"]))).collect();
    assert!(faults.is_empty(), "{} of {} rows fail:\n{}", faults.len(), rows.len(), faults.join("\n"));
}

fn reference_pairs() -> PathBuf {
    match std::env::var_os("TLSDYNO_REFERENCE_PAIRS") {
        Some(path) => path.into(),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/reference_pairs.csv"),
    }
}

fn check(row: &Row) -> Result<(), String> {
    let variables = variables(row)?;
    let fraction = evaluate(&row["formula"], &variables)?;
    let value = if row["unit"] == "%" { fraction * 100.0 } else { fraction };
    let computed: f64 =
        row["computed"].parse().map_err(|_| format!("`computed` is not a number: {}", row["computed"]))?;
    let half_a_digit = 0.5 * 10f64.powi(-decimals(&row["computed"]));
    if (value - computed).abs() > half_a_digit * (1.0 + 1e-6) {
        return Err(format!("{} gives {value}, the file says {computed}", row["formula"]));
    }
    agrees(value, &row["published"], &row["agreement"])
}

/// A formula of the file, by the project's own function where it has one.
fn evaluate(formula: &str, variables: &HashMap<&str, f64>) -> Result<f64, String> {
    let v = |name: &str| variables.get(name).copied().ok_or_else(|| format!("`{formula}` needs a value for {name}"));
    Ok(match formula {
        "P/(1+(1-r)*h)" => papers::throughput_at_reuse(v("P")?, v("h")?, v("r")?),
        "P*n/(n+h)" => papers::throughput_at_reuse(v("P")?, v("h")?, papers::share_saved(1.0, v("n")?)),
        "1-1/n" => papers::share_saved(1.0, v("n")?),
        "x/plain" => papers::relative_throughput(v("x")?, v("plain")?),
        "1-tls/minsetup" => papers::share_saved(v("tls")?, v("minsetup")?),
        "1-tls/plaincomm" => papers::share_saved(v("tls")?, v("plaincomm")?),
        "1-a/b" => papers::share_saved(v("a")?, v("b")?),
        "minsetup/tls-1" => v("minsetup")? / v("tls")? - 1.0,
        "plaincomm/tls-1" => v("plaincomm")? / v("tls")? - 1.0,
        "b/a-1" => v("b")? / v("a")? - 1.0,
        "a/b" => v("a")? / v("b")?,
        "tls/nocache" => v("tls")? / v("nocache")?,
        "1-1/(1+g)" => 1.0 - 1.0 / (1.0 + v("g")?),
        "tls*(1/a-1/b)" => papers::relative_cost(v("tls")?, v("a")?, v("b")?),
        unknown => {
            return Err(format!("no function of the project is known for the formula `{unknown}`"));
        }
    })
}

/// Whether the relation between the value and the published text is the one that the file claims.
fn agrees(value: f64, published: &str, agreement: &str) -> Result<(), String> {
    let printed = || published.parse::<f64>().map_err(|_| format!("`published` is not a number: {published}"));
    let scale = 10f64.powi(decimals(published));
    // A value that is a half in decimal may lie a little below it in binary.
    let tiny = 1e-9 * value.abs().max(1.0) * scale;
    let rounds_to = |printed: f64| ((value * scale + tiny).round() - printed * scale).abs() < 1e-6;
    let truncates_to = |printed: f64| ((value * scale + tiny).trunc() - printed * scale).abs() < 1e-6;
    let holds = match agreement {
        "round" => rounds_to(printed()?),
        "truncate" => truncates_to(printed()?),
        "within_1" => (value - printed()?).abs() <= 1.0,
        "inside range" => published_range(published)?.is_none_or(|(low, high)| (low..=high).contains(&value)),
        "DISAGREES" => {
            let printed = printed()?;
            !rounds_to(printed) && !truncates_to(printed)
        }
        // Nothing was printed to compare with: the value itself was compared above.
        "derived" | "no published pair" | "illegible" => true,
        unknown => return Err(format!("unknown agreement `{unknown}`")),
    };
    if holds {
        Ok(())
    } else {
        Err(format!("{value} and the published {published} are not in the relation `{agreement}`"))
    }
}

/// The numbers of `inside 13-58`; `inside range` names none.
fn published_range(published: &str) -> Result<Option<(f64, f64)>, String> {
    let unreadable = || format!("`published` is no range: {published}");
    match published.strip_prefix("inside ").ok_or_else(unreadable)? {
        "range" => Ok(None),
        range => {
            let (low, high) = range.split_once('-').ok_or_else(unreadable)?;
            Ok(Some((low.parse().map_err(|_| unreadable())?, high.parse().map_err(|_| unreadable())?)))
        }
    }
}

fn variables(row: &Row) -> Result<HashMap<&str, f64>, String> {
    let names: Vec<&str> = row["variables"].split(';').collect();
    let values: Vec<&str> = row["values"].split(';').collect();
    if names.len() != values.len() {
        return Err(format!("{} variables but {} values", names.len(), values.len()));
    }
    let parsed = names.into_iter().zip(values).map(|(name, value)| match value.parse() {
        Ok(number) => Ok((name, number)),
        Err(_) => Err(format!("value of {name} is not a number: {value}")),
    });
    parsed.collect()
}

/// Digits after the point.
fn decimals(number: &str) -> i32 {
    number.split_once('.').map_or(0, |(_, fraction)| fraction.len() as i32)
}

/// Comma-separated values with a header line; fields may be quoted, without line breaks inside.
fn parse(text: &str) -> Vec<Row> {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty()).map(fields);
    let header = lines.next().unwrap_or_default();
    lines
        .map(|fields| {
            assert_eq!(fields.len(), header.len(), "columns in {fields:?}");
            header.iter().cloned().zip(fields).collect()
        })
        .collect()
}

fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut quoted) = (vec![String::new()], false);
    for character in line.trim_end_matches('\r').chars() {
        match character {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            other => fields.last_mut().expect("one field at least").push(other),
        }
    }
    fields
}

mod the_check_itself {
    use super::*;

    /// A row of the file as shipped, with one column changed.
    fn changed(id: &str, column: &str, value: &str) -> Row {
        let shipped = parse(include_str!("../data/reference_pairs.csv"));
        let mut row = shipped.into_iter().find(|row| row["id"] == id).expect("the row is in the file");
        assert_eq!(check(&row), Ok(()));
        row.insert(column.to_owned(), value.to_owned());
        row
    }

    #[test]
    fn refuses_what_is_wrong() {
        for (id, column, value) in [
            ("f10_CS_tls_500", "formula", "x+plain"),
            ("f10_CS_tls_500", "unit", "x"),
            ("f10_CS_tls_500", "values", "152;720"),
            ("f10_CS_tls_500", "values", "151"),
            ("f10_CS_tls_500", "computed", "20.971"),
            ("f10_CS_tls_500", "published", "20"),
            ("f10_CS_tls_500", "agreement", "DISAGREES"),
            ("f10_CS_tls_500", "agreement", "more or less"),
            ("s310_CS_setup_500", "agreement", "round"),
            ("mraz_tps_94", "agreement", "round"),
            ("mraz_tps_94", "published", "125"),
            ("s36_amz933_rsa", "published", "inside 13-50"),
            ("s32_cpu_amz_tls", "published", "72"),
        ] {
            assert!(check(&changed(id, column, value)).is_err(), "{id} with {column} = {value} passes");
        }
    }
}
