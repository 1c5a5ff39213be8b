//! Files that extend each other, and what is wrong in them, as files of this kind.

use std::path::Path;

use anyhow::Result;
use tlsdyno_record::model::Experiment;
use tlsdyno_record::model::workload::WorkloadSpec;
use tlsdyno_runner::kinds;
use tlsdyno_runner::kinds::files::find;

use crate::{Ablation, AblationExperiment};

#[test]
fn experiments_have_names() {
    let question = |name: &str| find(&[&Ablation], Path::new(name)).map(|experiment| experiment.question().to_owned());
    assert_eq!(question("coarfa-2006-fig7").unwrap(), question("papers/coarfa-2006-fig7").unwrap());
    assert!(format!("{:#}", question("coarfa-2006-fig77").unwrap_err()).contains("--list"));
}

#[test]
fn bases_are_not_found() {
    assert!(find(&[&Ablation], Path::new("bases/coarfa-2006")).is_err());
}

fn found(which: &Path) -> Result<Experiment> {
    Ok(kinds::find::<AblationExperiment>(&[&Ablation], which, "one server")?.0)
}

/// Writes the files to a temporary directory, and reads the first.
fn read_files(files: &[(&str, &str)]) -> Result<Experiment> {
    let place = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = place.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    found(&place.path().join(files[0].0))
}

fn refusal(files: &[(&str, &str)]) -> String {
    format!("{:#}", read_files(files).unwrap_err())
}

#[test]
fn a_users_file_extends_an_experiment_that_comes_with_tlsdyno() {
    let mine = "extends = \"remedies\"\n[measure]\ntime_s = 20.0\n";
    let mut expected = found(Path::new("modern/remedies")).unwrap();
    expected.measure.time_s = 20.0;
    assert_eq!(read_files(&[("mine.toml", mine)]).unwrap(), expected);
}

#[test]
fn a_log_is_looked_for_beside_the_file_that_names_it() {
    let base = "question = \"q\"\n[workload]\nkind = \"trace\"\npath = \"access.log\"\n";
    let mine = "extends = \"logs/base.toml\"\n[workload]\nexclude = [\"crawlers\"]\n";
    let own = "extends = \"logs/base.toml\"\n[workload]\npath = \"my.log\"\n";
    let path_of = |last: &str| {
        let experiment = read_files(&[("mine.toml", last), ("logs/base.toml", base)]).unwrap();
        let WorkloadSpec::Trace { path, .. } = experiment.workload else { panic!("a log") };
        path
    };
    assert!(path_of(mine).ends_with("logs/access.log"), "{:?}", path_of(mine));
    assert!(path_of(own).ends_with("my.log") && !path_of(own).ends_with("logs/my.log"), "{:?}", path_of(own));
}

#[test]
fn unknown_keys_are_told_with_the_file_and_the_line_that_hold_them() {
    let mine = "extends = \"base.toml\"\n[load]\nconnections = 3\n";
    let cases = [
        ("question = \"q\"\n[tls]\nsurprise = 1\n", mine, "base.toml, line 3: unknown field `surprise`"),
        ("question = \"q\"\n[workload]\nkind = \"cdnow\"\nusers = 1\nsurprise = 1\n", mine, "base.toml, line 2"),
        ("question = \"q\"\n", "extends = \"base.toml\"\n\n[load]\nsurprise = 1\n", "mine.toml, line 4: unknown"),
        ("question = \"q\"\n", "extends = \"base.toml\"\nsurprise = 1\n", "mine.toml, line 2: unknown"),
        ("question = \"q\n", mine, "base.toml, line 1"),
        ("question = \"q\"\nwithout = [\"tls\"]\n", mine, "base.toml, line 2: unknown field `without`"),
    ];
    for (base, mine, expected) in cases {
        let said = refusal(&[("mine.toml", mine), ("base.toml", base)]);
        assert!(said.contains(expected), "{said}");
    }
    let said = refusal(&[("mine.toml", "question = \"q\"\n[tls]\nversion = 1.3\n")]);
    assert!(said.contains("mine.toml, line 3") && said.contains("3 | version = 1.3"), "{said}");
}

#[test]
fn a_base_that_is_missing_is_told_with_file_and_line() {
    for (base, expected) in [("nothing.toml", "failed to read"), ("nothing", "no experiment of that name")] {
        let said = refusal(&[("mine.toml", &format!("question = \"q\"\nextends = \"{base}\"\n"))]);
        assert!(said.contains("mine.toml, line 2") && said.contains(expected), "{said}");
    }
    let said = refusal(&[("mine.toml", "extends = [\"a\", \"b\"]\n")]);
    assert!(said.contains("mine.toml, line 1: `extends` takes the name of one"), "{said}");
}

#[test]
fn a_circle_is_told_with_its_chain() {
    let extends = |base: &str| format!("question = \"q\"\nextends = \"{base}\"\n");
    let files = [
        ("a.toml", extends("sub/b.toml")),
        ("sub/b.toml", extends("c.toml")),
        ("sub/c.toml", extends("../sub/b.toml")),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let said = refusal(&files);
    assert!(said.contains("c.toml, line 2"), "{said}");
    let chain: Vec<&str> = said.split('\n').next().unwrap().split(": ").last().unwrap().split(" extends ").collect();
    assert_eq!(chain.len(), 3, "{said}");
    assert!(chain[0].ends_with("sub/b.toml") && chain[1].ends_with("sub/c.toml"), "{said}");
    assert!(refusal(&[("a.toml", &extends("a.toml"))]).contains("in a circle"));
}

#[test]
fn what_is_left_out_or_renamed_must_be_there() {
    let base = "question = \"q\"\n[[configuration]]\nname = \"as is\"\n";
    let cases = [
        ("without = [\"configuration.no RSA\"]", "`configuration.no RSA`, which is not in what this file extends"),
        ("without = \"remedy\"", "takes a list"),
        ("rename = { \"configuration.no RSA\" = \"x\" }", "`configuration.no RSA`, which is not in what"),
        ("rename = { question = \"x\" }", "only entries have names"),
    ];
    for (line, expected) in cases {
        let mine = format!("extends = \"base.toml\"\n{line}\n");
        let said = refusal(&[("mine.toml", &mine), ("base.toml", base)]);
        assert!(said.contains("mine.toml, line 2") && said.contains(expected), "{said}");
    }
}
