//! stunnel: ends TLS in front of any server, of whose protocol it knows nothing, so that each connection of a client
//! costs one to the server.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Result, bail};
use askama::Template;
use tlsdyno_record::model::SessionCache;
use tlsdyno_tls::Version;

use super::instance::{Instance, start_by};
use super::programs::{self, Package};
use super::{InstancePlace, Origin, Prepared, ServerSpec, ServerTls, rendered};

const CONFIG_FILE: &str = "stunnel.conf";
const CERTIFICATE_FILE: &str = "certificate.pem";
pub(super) const PACKAGE: Package =
    Package { title: "stunnel", version: &["-version"], ..Package::new(&["stunnel4", "stunnel"]) };

pub(super) fn start(spec: &ServerSpec, run: &Path) -> Result<Instance> {
    start_by(spec, run, |place| prepare(spec, place))
}

fn prepare(spec: &ServerSpec, place: InstancePlace) -> Result<Prepared> {
    let (Some(tls), Some(origin)) = (&spec.tls, spec.origin.as_ref().and_then(Origin::server)) else {
        bail!("stunnel needs TLS settings and a server behind it");
    };
    let program = PACKAGE.require("")?;
    let certificate = place.own.join(CERTIFICATE_FILE);
    tls.certificate.write_in_one(&certificate)?;
    let has = |version| tls.versions().contains(&version);
    let lists = [
        ("ciphers", tls.cipher_list().filter(|_| has(Version::Tls12))),
        ("ciphersuites", tls.ciphersuites().filter(|_| has(Version::Tls13))),
        ("curves", tls.groups_list()),
    ];
    let [lowest, highest] = tls.version_range();
    let config = rendered(&Configuration {
        tls,
        origin,
        place,
        certificate: programs::writable(&certificate, "stunnel", "")?,
        lowest,
        highest,
        lists: lists.into_iter().filter_map(|(name, list)| Some((name, list?))).collect(),
    })?;
    let path = place.write(CONFIG_FILE, &config)?;
    let output = programs::output_of(&program, PACKAGE.version);
    let number = |line: &str| Some(line.trim_start_matches(['[', ' ', ':', ']']).strip_prefix("stunnel ")?.to_owned());
    let version = output.lines().find_map(number).unwrap_or("of unknown version".to_owned());
    Ok(Prepared {
        config,
        version: format!("stunnel {}", version.split(" on ").next().unwrap_or_default()),
        ..Prepared::new(program, vec![path.into()])
    })
}

/// The whole configuration file. Everything not set here is stunnel's default.
#[derive(Template)]
#[template(path = "stunnel.conf", escape = "none")]
struct Configuration<'a> {
    tls: &'a ServerTls,
    origin: SocketAddr,
    place: InstancePlace<'a>,
    certificate: &'a str,
    lowest: &'static str,
    highest: &'static str,
    lists: Vec<(&'static str, String)>,
}
