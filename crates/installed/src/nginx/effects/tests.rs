use std::path::{Path, PathBuf};

use super::*;
use tlsdyno_record::model::ServerName;

use crate::Installed;
use crate::nginx::Nginx;
use crate::nginx::reader::directives_of;

fn installed(text: &str) -> Installed {
    let site = Box::new(Nginx { directives: directives_of(text).unwrap() });
    Installed { server: ServerName::Nginx, site, host: None, replays: false, may_load: Vec::new() }
}

fn contained(text: &str) -> (String, Installed) {
    let installed = installed(text);
    let text = installed.text(4443, 4080, Path::new("/run/here")).unwrap();
    let directives = text.lines().filter(|line| !line.starts_with('#'));
    (directives.map(|line| format!("{line}\n")).collect(), installed)
}

/// Names that sound as if they reached beyond the server.
const SOUNDS: [&str; 47] = [
    "*_log",
    "*_path",
    "*_store",
    "*_pass",
    "*_only",
    "*_methods",
    "*_profiles",
    "*_remote",
    "*_request",
    "*_server",
    "*_url",
    "*_dir",
    "*_core",
    "*_file",
    "*_dump",
    "*_priority",
    "*_directory",
    "*_engine",
    "*_action",
    "*_points",
    "*_responder",
    "*_module",
    "*_set",
    "*_content",
    "*_import",
    "*_include",
    "*_modules",
    "*_require",
    "*_rules",
    "*_lua",
    "*_block",
    "*_redis",
    "*_push",
    "*_cache",
    "mirror*",
    "ssl_stapling*",
    "ssl_ocsp*",
    "perl*",
    "google*",
    "dav*",
    "resolver*",
    "post_*",
    "auth_request*",
    "auth_pam*",
    "stream",
    "mail",
    "rtmp*",
];
const READ_ONLY: &str = "auth_basic_user_file auth_pam_service_name auth_pam_set_pam_env auth_request_set dav_access \
    dav_ext_lock dav_ext_lock_zone dav_ext_methods fancyindex_hide_parent_dir fancyindex_show_path \
    fastcgi_cache fastcgi_cache_methods fastcgi_no_cache grpc_ssl_certificate_cache \
    grpc_ssl_password_file http2_push js_engine js_path lua_capture_error_log lua_code_cache \
    lua_load_resty_core lua_package_path mirror_request_body nchan_redis_ssl_trusted_certificate_path \
    nchan_storage_engine nchan_subscribe_existing_channels_only open_file_cache open_log_file_cache \
    post_acceptex proxy_cache proxy_cache_methods proxy_cookie_path proxy_no_cache \
    proxy_ssl_certificate_cache proxy_ssl_password_file push_stream_authorized_channels_only \
    push_stream_channels_path push_stream_header_template_file resolver_timeout rewrite_log rtmp_control \
    rtmp_stat rtmp_stat_stylesheet scgi_cache scgi_cache_methods scgi_no_cache srcache_methods \
    srcache_store_no_cache ssl_certificate_cache ssl_ech_file ssl_ocsp_cache ssl_password_file \
    ssl_session_cache ssl_stapling_verify userid_path uwsgi_cache uwsgi_cache_methods uwsgi_no_cache \
    uwsgi_ssl_certificate_cache uwsgi_ssl_password_file";

#[test]
fn every_directive_that_sounds_like_an_effect_is_classified() {
    let names: Vec<&str> = KNOWN.split_ascii_whitespace().collect();
    assert!(names.len() > 900 && names.is_sorted());
    let sounds = |name: &&str| SOUNDS.iter().any(|pattern| matches(pattern, name));
    let is_read_only = |name: &str| READ_ONLY.split_ascii_whitespace().any(|other| other == name);
    let open: Vec<&str> =
        names.iter().copied().filter(sounds).filter(|name| effect_of(name).is_none() && !is_read_only(name)).collect();
    assert_eq!(open, Vec::<&str>::new());
    let twice: Vec<&str> = names.into_iter().filter(|name| is_read_only(name) && effect_of(name).is_some()).collect();
    assert_eq!(twice, Vec::<&str>::new());
}

#[test]
fn the_table_stands_in_the_docs() {
    let docs = include_str!("../../../../../docs/SERVERS.md");
    let names = EFFECTS.iter().flat_map(|(names, ..)| names.split(' '));
    let missing: Vec<&str> = names.filter(|name| !docs.contains(&format!("`{name}`"))).collect();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn what_is_written_is_written_in_the_private_directory() {
    let (text, _) = contained(
        "error_log syslog:server=192.0.2.1 notice; pid /run/x.pid; http { proxy_temp_path /var/t; error_log /e/1 debug;
         scgi_cache_path /c/s keys_zone=s:1m; proxy_cache_path /c/p keys_zone=p:1m use_temp_path=off;
         server { listen 443 ssl; access_log syslog:server=192.0.2.1,tag=live combined if=$loggable;
         access_log /l/2 combined buffer=32k; location /a { access_log /l/2 combined buffer=32k;
         client_body_temp_path /b; access_log off; } } } google_perftools_profiles /p/x;",
    );
    for there in [
        "error_log /run/here/error.log notice;",
        "error_log /run/here/error.log debug;",
        "lock_file /run/here/nginx.lock;",
        "pid /run/here/nginx.pid;",
        "proxy_temp_path /run/here/proxy_temp_path;",
        "scgi_temp_path /run/here/scgi_temp_path;",
        "scgi_cache_path /run/here/cache-1 keys_zone=s:1m;",
        "proxy_cache_path /run/here/cache-2 keys_zone=p:1m use_temp_path=off;",
        "access_log /run/here/access.log combined if=$loggable;",
        "access_log /run/here/access-1.log combined buffer=32k;",
        // That of http, which had none.
        "access_log /run/here/access-2.log;",
        "access_log off;",
        "google_perftools_profiles /run/here/profile-1;",
    ] {
        assert!(text.contains(there), "{there} is not in\n{text}");
    }
    assert_eq!(text.matches("access-1.log").count(), 2, "{text}");
    for gone in ["syslog", "/var/t", "/c/", "/l/", "/e/", "/b;", "/p/", "/run/x.pid"] {
        assert!(!text.contains(gone), "{gone} is in\n{text}");
    }
}

#[test]
fn what_asks_or_changes_others_is_off_or_told() {
    let (text, installed) = contained(
        "stream { server { listen 99; } } worker_priority -5; http { server { listen 443 ssl; ssl_stapling on;
         mirror /m; dav_methods PUT DELETE; location / { proxy_pass http://up; proxy_store on; post_action /p;
         strange on; content_by_lua_block { ngx.say(1) } } location /off { proxy_store off; mirror off; } }
         server { ssl_stapling_file /s; ssl_stapling on; types { access_log x; } }
         upstream up { server 192.0.2.7:80; } }",
    );
    for there in ["ssl_stapling off;", "mirror off;", "dav_methods off;", "proxy_store off;", "ssl_stapling on;"] {
        assert!(text.contains(there), "{there} is not in\n{text}");
    }
    for gone in ["listen 99", "worker_priority", "post_action"] {
        assert!(!text.contains(gone), "{gone} is in\n{text}");
    }
    assert!(installed.runs_code());
    let notes = installed.effects().unwrap().join("\n");
    for said in [
        "Switched off: dav_methods, mirror, proxy_store, ssl_stapling\n",
        "Left out: post_action, stream, worker_priority\n",
        "may do anything: content_by_lua_block\n",
        "not known: strange\n",
        "Asked for real where the load leads there: 192.0.2.7:80 (upstream)",
    ] {
        assert!(notes.contains(said), "{said} is not in\n{notes}");
    }
    let refused = self::installed("http { acme_issuer x { } }").effects().unwrap_err().to_string();
    assert!(refused.contains("acme_issuer, which would order certificates"), "{refused}");
}

#[test]
fn a_plain_configuration_runs_no_code_and_asks_nobody() {
    let (text, installed) = contained("http { server { listen 443 ssl; root /srv/a b; alias /srv/$x; } }");
    assert!(!installed.runs_code());
    assert!(!installed.effects().unwrap().join("\n").contains("Asked for real"));
    assert_eq!(installed.site.documents(), [PathBuf::from("/srv/a")]);
    let without = super::fitting(&text, "configure arguments: --without-http_scgi_module --with-http_ssl_module");
    assert!(!without.contains("scgi_temp_path") && without.contains("uwsgi_temp_path"), "{without}");
}

#[test]
fn pages_and_records_show_what_matters_and_no_secret() {
    let (_, installed) = contained(
        "http { map $http_x $y { default 0; \"secret\" 1; } server { listen 443 ssl; ssl_protocols TLSv1.3;
         ssl_certificate /etc/ssl/a.pem; location /secret { proxy_set_header Authorization \"Basic secret\";
         proxy_pass http://user:secret@127.0.0.1:9000; if ($arg_k = secret) { return 403; }
         content_by_lua_block { local token = \"secret\" } } secret_directive secret; set $token secret;
         access_log syslog:server=192.0.2.1 secret_format; keepalive_timeout 65; } }",
    );
    let shown = installed.copy(installed.example()).unwrap().shown;
    for there in [
        "ssl_protocols TLSv1.3;",
        "ssl_certificate /etc/ssl/a.pem;",
        "listen 127.0.0.1:0 ssl",
        "keepalive_timeout 65;",
        "proxy_set_header …;",
        "set …;",
        "location … {",
        "map … { … }",
        "content_by_lua_block { … }",
        "        … …;",
    ] {
        assert!(shown.contains(there), "{there} is not in\n{shown}");
    }
    assert!(!shown.replace("secret_format", "").contains("secret"), "{shown}");
    // What the table shows, nginx has.
    let names = include_str!("../shown.txt").lines().filter(|line| !line.starts_with(['#', '[']));
    let names = names.flat_map(str::split_ascii_whitespace).filter(|name| !name.contains('*'));
    assert_eq!(names.filter(|name| !is_known(name)).collect::<Vec<_>>(), Vec::<&str>::new());
}
