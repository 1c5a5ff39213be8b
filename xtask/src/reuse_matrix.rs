//! Reuse exactness on every server: runs the matrix and writes its table into docs/RESULTS.md.

use anyhow::{Context, Result, bail};

use crate::tlsdyno::{example, workspace};

const BEGIN: &str = "<!-- reuse-matrix: begin -->\n";
const END: &str = "<!-- reuse-matrix: end -->\n";

/// Connections of each cell, if no number is given.
const CONNECTIONS: u64 = 20_000;

/// What was asked for.
#[derive(clap::Args)]
pub struct Arguments {
    /// Connections of each cell
    #[arg(long, value_name = "N", default_value_t = CONNECTIONS)]
    connections: u64,
    /// One server only, whose rows are printed
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
}

/// Builds tlsdyno and makes the matrix. With all servers the table is written into the page, with one it is printed.
///
/// # Errors
/// It cannot be built or run; a server is not installed; a share is not offered as asked, or the client's count is not
/// the server's.
pub fn run(arguments: &Arguments) -> Result<()> {
    let words = [arguments.connections.to_string()].into_iter().chain(arguments.server.clone());
    let output = example("reuse_matrix", &words.collect::<Vec<_>>())?;
    let table = String::from_utf8(output.stdout).context("the table is not text")?;
    if !output.status.success() {
        bail!("the matrix did not come out:\n{table}");
    }
    if arguments.server.is_some() {
        print!("{table}");
        return Ok(());
    }
    let path = workspace().join("docs/RESULTS.md");
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
    Ok(format!("{before}{BEGIN}{}\n\n{table}{END}{after}", lead(connections)))
}

/// What stands above the table: what is in it, and the command that made it.
fn lead(connections: u64) -> String {
    let flag = if connections == CONNECTIONS { String::new() } else { format!(" --connections {connections}") };
    format!(
        "Per cent of {connections} connections, by the server's own log (`cargo run --release -p xtask -- \
         reuse-matrix{flag}`, or one server with `--server NAME`):"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_the_command_that_made_it() {
        let page = |connections| with_table(&format!("{BEGIN}{END}"), "", connections).unwrap();
        assert!(page(CONNECTIONS).contains("(`cargo run --release -p xtask -- reuse-matrix`, or one server"));
        assert!(page(4000).contains("(`cargo run --release -p xtask -- reuse-matrix --connections 4000`, or"));
    }

    #[test]
    fn what_stands_above_the_table_in_the_page_is_what_would_be_written() {
        let page = std::fs::read_to_string(workspace().join("docs/RESULTS.md")).unwrap();
        let said = page.split_once(BEGIN).unwrap().1.lines().next().unwrap();
        let connections = said.split(' ').find_map(|word| word.parse().ok()).unwrap();
        assert_eq!(said, lead(connections));
    }

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let page = format!("above\n{BEGIN}old\n{END}below\n");
        let new = with_table(&page, "| new |\n", 5).unwrap();
        assert!(new.starts_with("above\n") && new.ends_with(&format!("| new |\n{END}below\n")) && !new.contains("old"));
        assert!(with_table("no marks", "", 5).is_err());
    }
}
