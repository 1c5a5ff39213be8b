//! Conditions of lighttpd, as far as they hold for all requests to a host on a port.

use regex_lite::Regex;

use super::reader::Item;
use super::socket_port;

/// The settings that hold there: below conditions stands what takes the place of what stands around them.
pub(super) fn in_force<'a>(items: &'a [Item], port: u16, host: Option<&str>) -> Vec<&'a Item> {
    let (blocks, mut settings): (Vec<&Item>, Vec<&Item>) =
        items.iter().partition(|item| matches!(item, Item::Block { .. }));
    let mut is_decided = false;
    for block in blocks {
        let Item::Block { head, inner } = block else { continue };
        let otherwise = head.strip_prefix("else").map(str::trim);
        is_decided &= otherwise.is_some();
        let condition = otherwise.unwrap_or(head);
        if !is_decided && (condition.is_empty() || is_met(condition, port, host)) {
            is_decided = true;
            settings.extend(in_force(inner, port, host));
        }
    }
    settings
}

/// `$HTTP["host"] =~ "^www"`. What another part of a request decides (its path, its sender) is met for some requests
/// only, so that it is not.
fn is_met(condition: &str, port: u16, host: Option<&str>) -> bool {
    let mut words = condition.splitn(3, ' ');
    let [subject, operator, value] = std::array::from_fn(|_| words.next().unwrap_or_default());
    let value = value.trim_matches('"');
    let own = match subject {
        "$SERVER[\"socket\"]" => return operator == "==" && socket_port(condition) == Some(port),
        "$HTTP[\"scheme\"]" => "https",
        "$HTTP[\"host\"]" => host.unwrap_or_default(),
        _ => return false,
    };
    match operator {
        "==" => own == value,
        "!=" => own != value,
        "=^" => own.starts_with(value),
        "=$" => own.ends_with(value),
        "=~" => Regex::new(value).is_ok_and(|regex| regex.is_match(own)),
        "!~" => Regex::new(value).is_ok_and(|regex| !regex.is_match(own)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::reader::read;
    use super::*;

    #[test]
    fn what_other_hosts_say_does_not_hold() {
        let text = "config {\n a = 0\n b = 0\n $SERVER[\"socket\"] == \"0.0.0.0:443\" {\n  b = 1\n\
            $HTTP[\"host\"] == \"shop.example\" {\n a = 2\n }\n else $HTTP[\"host\"] =~ \"^www[.]\" {\n a = 3\n }\n\
            else {\n a = 4\n }\n }\n $HTTP[\"url\"] =~ \"^/x\" {\n a = 5\n }\n\
            $HTTP[\"scheme\"] == \"http\" {\n a = 6\n }\n $HTTP[\"host\"] =$ \".org\" {\n b = 7\n }\n}\n";
        let items = read(text).unwrap();
        let say = |port, host| {
            let all = in_force(&items, port, host);
            ["a", "b"].map(|name| all.iter().rfind(|item| item.is(name)).unwrap().value().unwrap()).concat()
        };
        assert_eq!(say(443, Some("shop.example")), "21");
        assert_eq!(say(443, Some("www.x.org")), "37");
        assert_eq!([say(443, Some("x.org")), say(443, None), say(80, None)], ["47", "41", "00"]);
    }
}
