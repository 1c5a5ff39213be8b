//! `tlsdyno stacks`: which stacks there are, and building those that are missing.

use anyhow::{Result, anyhow};
use tlsdyno_base::exit::Exit;
use tlsdyno_base::fault::Fault;
use tlsdyno_base::output;
use tlsdyno_report::document::{Column, Field, Table};
use tlsdyno_runner::report::Style;
use tlsdyno_runner::report::terminal::table_text;

use super::build::alone;
use super::recipe::{Recipe, State};

/// Servers with their TLS libraries, for `run stacks`: list which there are, and build those that are missing
///
/// They are built from upstream's sources, with checksums, in the user's cache directory. No root is needed, and no
/// library of the system is changed.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum What {
    /// Build stacks, at the lowest priority; what was built stays, and what was ended goes on
    Build(BuildArgs),
}

#[derive(clap::Args, Clone, Debug)]
struct BuildArgs {
    /// Their names, for example nginx/aws-lc, or recipes of your own (files that end in .toml)
    #[arg(value_name = "STACK", required_unless_present = "all")]
    names: Vec<String>,
    /// All that can be built here
    #[arg(long, conflicts_with = "names")]
    all: bool,
}

pub fn run(args: &Args) -> Result<Exit> {
    match &args.what {
        Some(What::Build(args)) => build(args),
        None => output::answer(listing(&states(Recipe::all()?)?)),
    }
}

type Known = (Recipe, State);

fn states(recipes: Vec<Recipe>) -> Result<Vec<Known>> {
    recipes.into_iter().map(|recipe| recipe.state().map(|state| (recipe, state))).collect()
}

fn listing(all: &[Known]) -> String {
    let fields: [Field<Known>; _] = [
        (Column::words("stack"), |(recipe, _)| recipe.name()),
        (Column::words("state"), |(_, state)| told(state)),
        (Column::words("what"), |(recipe, _)| recipe.title.clone()),
    ];
    table_text(&Table::from_fields(fields, all), Style::of_stdout()) + "\n"
}

fn told(state: &State) -> String {
    match state {
        State::Installed => "installed".to_owned(),
        State::Built => "built".to_owned(),
        State::Unbuilt(minutes) => format!("not built ({minutes:.1} min)"),
        State::Missing(packages) => {
            let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
            format!("needs {}", packages.join(" "))
        }
    }
}

fn build(args: &BuildArgs) -> Result<Exit> {
    let recipes = match args.all {
        true => Recipe::all()?,
        false => args.names.iter().map(|name| Recipe::find(name)).collect::<Result<_>>()?,
    };
    let _alone = alone()?;
    let (mut wanted, mut failed) = (Vec::new(), Vec::new());
    for (recipe, state) in states(recipes)? {
        match &state {
            State::Unbuilt(minutes) => {
                tell!("{}: about {minutes:.1} minutes of one CPU, at the lowest priority", recipe.name());
                wanted.push(recipe);
            }
            State::Missing(packages) => {
                let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
                failed.push(format!("{} needs (Debian) `apt-get install {}`", recipe.name(), packages.join(" ")));
            }
            State::Installed | State::Built => tell!("{}: {}", recipe.name(), told(&state)),
        }
    }
    if args.all {
        failed.drain(..).for_each(|why| tell!("{why}"));
    }
    failed.extend(wanted.iter().filter_map(|recipe| recipe.build().err()).map(|error| format!("{error:#}")));
    match failed.is_empty() {
        true => Ok(Exit::Done),
        false => Err(Fault::Environment.wrap(anyhow!(failed.join("\n")))),
    }
}
