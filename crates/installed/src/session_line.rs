//! The line for a log that tells which connections resumed a session.

use tlsdyno_record::model::ServerName;

use super::AccessLog;

/// What tells more than a log in the combined format does: words of a server's formats, and the line that adds them.
struct Telling {
    variables: [&'static str; 3],
    line: &'static str,
}

/// Of lighttpd nothing: it has no variable for resumption.
fn telling_of(server: ServerName) -> Option<Telling> {
    match server {
        ServerName::Nginx => Some(Telling {
            variables: ["$ssl_session_reused", "$connection_requests", "$ssl_protocol"],
            line: "log_format tls '$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
                   \"$http_referer\" \"$http_user_agent\" $ssl_protocol $ssl_session_reused $connection_requests';",
        }),
        ServerName::ApacheEvent | ServerName::ApachePrefork => Some(Telling {
            variables: ["%{SSL_SESSION_RESUMED}x", "%k", "%{SSL_PROTOCOL}x"],
            line: "LogFormat \"%h %l %u %t \\\"%r\\\" %>s %b \\\"%{Referer}i\\\" \\\"%{User-Agent}i\\\" \
                   %{SSL_PROTOCOL}x %{SSL_SESSION_RESUMED}x %k\" tls",
        }),
        // Its own format has no place for what `log-format` can say: this is the combined one.
        ServerName::Haproxy => Some(Telling {
            variables: ["ssl_fc_is_resumed", "http_first_req", "%sslv"],
            line: "log-format \"%ci - - [%trl] %{+Q}r %ST %B - - %sslv %[ssl_fc_is_resumed] %[http_first_req]\"",
        }),
        _ => None,
    }
}

/// The line that a server needs to log its sessions; `None`: it can log none, or one of these logs does.
pub fn session_line(server: ServerName, logs: &[AccessLog]) -> Option<&'static str> {
    let Telling { variables, line } = telling_of(server)?;
    let all = |log: &AccessLog| variables.iter().all(|word| log.format.contains(word));
    (!logs.iter().any(all)).then_some(line)
}
