//! In place of what speaks to PostgreSQL, where the feature `postgres` is left out: no such store can be named.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Error, Result};
use tlsdyno_base::fault::left_out;

use super::sqlite::Sqlite;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerUrl {}

impl ServerUrl {
    pub fn is_one(text: &str) -> bool {
        text.starts_with("postgres:") || text.starts_with("postgresql:")
    }

    pub fn set_password_file(&mut self, _: &Path) {
        match *self {}
    }

    pub(super) fn digest(&self) -> String {
        match *self {}
    }
}

impl FromStr for ServerUrl {
    type Err = Error;

    fn from_str(_: &str) -> Result<ServerUrl> {
        Err(left_out("a store in PostgreSQL", "postgres"))
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

pub enum Postgres {}

impl Postgres {
    pub fn connect(url: &ServerUrl, _: Duration) -> Result<Sqlite> {
        match *url {}
    }
}
