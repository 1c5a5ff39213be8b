//! Files that are no main configuration of nginx, and what to do with them instead.

use std::path::Path;

/// A server whose configuration was taken for nginx's.
struct Other {
    name: &'static str,
    files: &'static [&'static str],
    /// The command that starts it in the foreground with this file.
    command: &'static str,
}

const OTHERS: [Other; 2] = [
    Other {
        name: "Caddy",
        files: &["caddyfile", "caddy.json"],
        command: "caddy run --config FILE --adapter caddyfile",
    },
    Other { name: "Traefik", files: &["traefik"], command: "traefik --configFile=FILE" },
];

/// What to do where a file is no main configuration of nginx: it is another server's, or a part of one.
pub fn advice(path: &Path, text: &str) -> Option<String> {
    let code = || text.lines().map(str::trim_start).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let begins = |starts: &[&str]| code().any(|line| starts.iter().any(|start| line.starts_with(start)));
    if begins(&["http {", "http{", "events {", "events{", "http\n"]) || code().any(|line| line.trim_end() == "http") {
        return None;
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let is_named = |other: &&Other| other.files.iter().any(|file| name.contains(file));
    let shown = path.display();
    let Some(other) = OTHERS.iter().find(is_named) else {
        return begins(&["server {", "server{"]).then(|| {
            format!(
                "{shown} is a part of a configuration: it has no `http` block. Name the file that includes it, usually \
                 /etc/nginx/nginx.conf; --host chooses the site"
            )
        });
    };
    let command = other.command.replace("FILE", &shown.to_string());
    Some(format!(
        "{shown} is a configuration of {}; --server-config does not read it. Start that server by its command: \
         --server-command '{command}' --address 127.0.0.1:PORT --path / (docs/TUTORIAL.md section 4; with {{port}} in \
         a copy of the file instead of its ports it is measured ten times as fast)",
        other.name
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_servers_and_parts_are_known() {
        let fault = |path: &str, text: &str| advice(Path::new(path), text).unwrap_or_default();
        assert!(fault("/x/Caddyfile", "example.com {\n}\n").contains("Caddy"));
        assert!(fault("/etc/nginx/sites-enabled/default", "server {\n listen 443 ssl;\n}\n").contains("includes it"));
        for nginx in
            ["events {}\nhttp { }", "http\n{\n}\n", "user www-data;\nhttp{}", "# nothing\n", "load_module x;\n"]
        {
            assert_eq!(fault("/etc/nginx/nginx.conf", nginx), "", "{nginx}");
        }
    }
}
