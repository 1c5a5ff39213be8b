//! Reuse exactness on every server: runs the matrix and writes its table into docs/LOAD.md.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

const BEGIN: &str = "<!-- reuse-matrix: begin -->\n";
const END: &str = "<!-- reuse-matrix: end -->\n";

/// What was asked for.
#[derive(clap::Args)]
pub struct Arguments {
    /// Connections of each cell
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    connections: u64,
    /// One server only, whose rows are printed
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
}

/// Builds tlsdyno and makes the matrix. With all servers the table is written into the page, with one it is printed.
///
/// # Errors
/// It cannot be built or run; a server is not installed; a share is not offered as asked, or the client's count is not the server's.
pub fn run(arguments: &Arguments) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace has no directory")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .current_dir(root)
        .args(["build", "-p", "tlsdyno", "--bins", "--example", "reuse_matrix"])
        .status()
        .context("run cargo")?;
    ensure!(built.success(), "tlsdyno cannot be built");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let debug = target.join("debug");
    let output = Command::new(debug.join("examples/reuse_matrix"))
        .args([debug.join("tlsdyno").into_os_string(), arguments.connections.to_string().into()])
        .args(&arguments.server)
        .stderr(Stdio::inherit())
        .output()
        .context("run the matrix")?;
    let table = String::from_utf8(output.stdout).context("the table is not text")?;
    if !output.status.success() {
        bail!("the matrix did not come out:\n{table}");
    }
    if arguments.server.is_some() {
        print!("{table}");
        return Ok(());
    }
    let path = root.join("docs/LOAD.md");
    let page = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let page = with_table(&page, &table, arguments.connections).with_context(|| path.display().to_string())?;
    std::fs::write(&path, page).with_context(|| format!("write {}", path.display()))?;
    eprintln!("wrote {}", path.display());
    Ok(())
}

/// `page` with `table` between its marks.
fn with_table(page: &str, table: &str, connections: u64) -> Result<String> {
    let (before, rest) = page.split_once(BEGIN).context("it has no mark of the table's beginning")?;
    let (_, after) = rest.split_once(END).context("it has no mark of the table's end")?;
    let command = "cargo run --release -p xtask -- reuse-matrix";
    Ok(format!(
        "{before}{BEGIN}Per cent of {connections} connections, by the server's own log (`{command}`):\n\n{table}{END}{after}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let page = format!("above\n{BEGIN}old\n{END}below\n");
        let new = with_table(&page, "| new |\n", 5).unwrap();
        assert!(new.starts_with("above\n") && new.ends_with(&format!("| new |\n{END}below\n")) && !new.contains("old"));
        assert!(with_table("no marks", "", 5).is_err());
    }
}
