//! What clients bring to the servers of an experiment: names, headers, a certificate.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use tlsdyno_base::certificate_files;
use tlsdyno_engine::load::Workload;
use tlsdyno_record::model::ClientModel;
use tlsdyno_tls::ClientCertificate;

use crate::load::values::Header;
use tlsdyno_workloads::ServedWorkload;

const COOKIE: &str = "Cookie";

/// What Chromium sends with a document, but for what asks for compression, which would change the answers.
const BROWSER_HEADERS: [(&str, &str); 3] = [
    (
        "User-Agent",
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36",
    ),
    ("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8"),
    ("Accept-Language", "en-US,en;q=0.9"),
];

/// The further headers of each request. `cookie_bytes`: of the cookie among those that browsers send; `None`: these are
/// left out.
pub fn header_lines(client: &ClientModel, cookie_bytes: Option<u32>) -> Result<String> {
    let header = |text: &String| text.parse::<Header>().map_err(|what| anyhow!("{what}"));
    let own: Vec<Header> = client.headers.iter().map(header).collect::<Result<_>>()?;
    let of_browser = cookie_bytes.map_or(Vec::new(), |bytes| browser_lines(&own, bytes));
    Ok(own.iter().map(Header::line).chain(of_browser).collect())
}

/// What a browser sends besides its user's own headers, with a cookie of so many bytes.
pub fn browser_lines(own: &[Header], cookie_bytes: u32) -> Vec<String> {
    let cookie = format!("session={:x<1$}", "", (cookie_bytes as usize).saturating_sub("session=".len()));
    let is_sent = |name: &str| !own.iter().any(|own| own.is_named(name)) && (cookie_bytes > 0 || name != COOKIE);
    let all = BROWSER_HEADERS.into_iter().chain([(COOKIE, cookie.as_str())]);
    all.filter(|(name, _)| is_sent(name)).map(|(name, value)| format!("{name}: {value}\r\n")).collect()
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
