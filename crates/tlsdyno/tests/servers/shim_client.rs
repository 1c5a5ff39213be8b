//! Every stage of the shim on real servers with the lean client as the other end: the short version of the stage ×
//! server matrix (`cargo run -p xtask -- stage-matrix` makes the whole one). Those of the provider have tests of their
//! own.

use tlsdyno::model::ServerName;
use tlsdyno::servers::launch::set_own_executable;

#[path = "../../../../xtask/src/stage_matrix/column.rs"]
mod column;

use column::{check, configurations, tls_variants};

fn all_pass(server: ServerName, variant: usize) {
    set_own_executable(env!("CARGO_BIN_EXE_tlsdyno").as_ref());
    let (name, tls) = &tls_variants()[variant];
    let mut wanted = configurations(tls);
    wanted.retain(|model| model.is_untouched() || model.needs_shim());
    let cells = check(server, tls, wanted, &mut |name| println!("{name}")).unwrap().cells;
    let failures: Vec<String> = cells
        .iter()
        .flat_map(|cell| {
            cell.failures().map(|check| format!("{}: {} ({})", cell.configuration, check.name, check.seen))
        })
        .collect();
    assert!(failures.is_empty(), "{} {name}:\n{}", server.name(), failures.join("\n"));
    let unable: Vec<&String> = cells.iter().filter_map(|cell| cell.unable.as_ref()).collect();
    assert!(unable.is_empty(), "{} {name}: {unable:?}", server.name());
    assert!(cells.len() >= 11 && cells.iter().all(|cell| cell.checks.len() > 4), "the checks were made");
}

#[test]
fn built_in_tls13() {
    all_pass(ServerName::Builtin, 0);
}

#[test]
fn nginx_tls12_id() {
    all_pass(ServerName::Nginx, 2);
}
