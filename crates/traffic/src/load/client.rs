//! What clients bring to the servers of an experiment: names, headers, a certificate.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use tlsdyno_base::certificate_files;
use tlsdyno_engine::load::Workload;
use tlsdyno_record::model::ClientModel;
use tlsdyno_tls::ClientCertificate;

use crate::load::values::Header;
use tlsdyno_workloads::ServedWorkload;

pub fn header_lines(client: &ClientModel) -> Result<String> {
    let line = |text: &String| text.parse::<Header>().map(|header| header.line()).map_err(|what| anyhow!("{what}"));
    client.headers.iter().map(line).collect()
}

pub fn workload(site: &ServedWorkload, lines: &str) -> Arc<Workload> {
    if lines.is_empty() {
        return Arc::clone(&site.workload);
    }
    let mut workload = Workload::clone(&site.workload);
    workload.objects.iter_mut().for_each(|object| object.headers += lines);
    Arc::new(workload)
}

/// The certificate that they bring.
pub fn certificate(client: &ClientModel) -> Result<Option<ClientCertificate>> {
    let files = client.certificate.as_ref().zip(client.key.as_ref());
    files.map(|(certificate, key)| certificate_files::client_certificate(certificate, key)).transpose()
}

/// A Host header's value without its port and brackets.
pub fn bare_host(host: &str) -> &str {
    if let Some((literal, _)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return literal;
    }
    match host.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_port_and_brackets() {
        for (host, bare) in [
            ("a.b", "a.b"),
            ("a.b:8443", "a.b"),
            ("[::1]:8443", "::1"),
            ("[::1]", "::1"),
            ("::1", "::1"),
            ("127.0.0.1:1", "127.0.0.1"),
        ] {
            assert_eq!(bare_host(host), bare);
        }
    }
}
