//! Where a block of Lua ends: braces in its strings, comments and long brackets are none (the lexer of nginx's Lua
//! module, `ngx_http_lua_lex.c`).

/// The place of the brace that closes the block which begins at the start of `text`.
pub fn end_of_block(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (0, 1);
    while at < bytes.len() {
        let rest = &text[at..];
        match bytes[at] {
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            b'-' if rest.starts_with("--") => {
                at += match long_bracket(&rest[2..]) {
                    Some(length) => 2 + length?,
                    None => rest.find('\n')?,
                };
                continue;
            }
            b'[' => {
                if let Some(length) = long_bracket(rest) {
                    at += length?;
                    continue;
                }
            }
            b'"' | b'\'' => at += end_of_string(rest.as_bytes()).unwrap_or(0),
            _ => {}
        }
        // Between characters: those above are ASCII.
        at += text[at..].chars().next().map_or(1, char::len_utf8);
    }
    None
}

/// The length of a long bracket (`[[…]]`, `[==[…]==]`) at the start of `text`: `Some(None)` where it is not closed.
fn long_bracket(text: &str) -> Option<Option<usize>> {
    let level = text.strip_prefix('[')?.bytes().take_while(|byte| *byte == b'=').count();
    text[1 + level..].starts_with('[').then(|| {
        let close = format!("]{}]", "=".repeat(level));
        text.find(&close).map(|at| at + close.len())
    })
}

/// The place of the quote that ends the string at the start; `None`: it does not end on its line, and the quote is
/// none.
fn end_of_string(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match *text.get(at)? {
            b'\\' => at += 1,
            b'\n' => return None,
            byte if byte == text[0] => return Some(at),
            _ => {}
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_count_only_in_code() {
        for block in [
            "",
            " local t = { a = { 1 } } ",
            " greeting = \"braces } in { strings -- } \" -- and } in a comment\n ",
            " ngx.print('a}b\\'}c') ",
            " x = [[ } ]] .. [==[ ]] } ]=] ]==] ",
            " --[[ } \n } ]] y = t[ t[1] ] ",
            " --[==[ } ]] ]==] z() -- it's }\n",
            " -- don't }\n s = \"\\\"}\" ",
            " s = 'ä}\u{10ff80}' ",
            " s = \"a\\\n}\" ",
            " a = b - -c -- [[ } \n",
        ] {
            assert_eq!(end_of_block(&format!("{block}}} after }}")), Some(block.len()), "{block}");
        }
        for open in ["", " { ", " x = \"}\" ", " --[[ } ", " [[ } ", " -- }", " --[==[ ]] } "] {
            assert_eq!(end_of_block(open), None, "{open}");
        }
    }
}
