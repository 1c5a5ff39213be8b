/*
 * Signs by a stub, with an agent of this program's own on the socket that answers rightly and wrongly. What it says
 * must never be taken for what it is not. After each fault the next request is answered on a new connection. All of it
 * also in threads, and in children of a fork.
 *
 *     remote_keys SOCKET STUB KEY
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/provider.h>

#include "check.h"

enum { THREADS = 4, ROUNDS = 25, HEAD = 2 + 4 + 1 + 16 + 2, ANSWER_HEAD = 2 + 4 + 1 };

enum fault { NONE, CLOSES, CUTS, TOO_LONG, TOO_SHORT, SAYS_NO, HUGE_SIGNATURE, FAULTS };

static EVP_PKEY *stub, *key;
static atomic_int *fault; /* what the agent does wrong; shared with it */
static int listener;

static bool take(int from, unsigned char *bytes, size_t length)
{
    for (size_t done = 0; done < length;) {
        ssize_t part = read(from, bytes + done, length - done);

        if (part <= 0)
            return false;
        done += (size_t)part;
    }
    return true;
}

/* The whole of a request, of which the message is signed. */
static bool answer(int connection)
{
    unsigned char frame[HEAD + 512], said[ANSWER_HEAD + 2048] = {0};
    size_t length, size = 2048;
    EVP_MD_CTX *context = EVP_MD_CTX_new();

    CHECK(context != NULL);
    if (!take(connection, frame, 2) || *fault == CLOSES) {
        EVP_MD_CTX_free(context);
        return false;
    }
    length = (size_t)frame[0] << 8 | frame[1];
    CHECK(length + 2 >= HEAD && length + 2 <= sizeof(frame) && take(connection, frame + 2, length));
    CHECK(EVP_DigestSignInit(context, NULL, EVP_sha256(), NULL, key) == 1);
    CHECK(EVP_DigestSign(context, said + ANSWER_HEAD, &size, frame + HEAD, length + 2 - HEAD) == 1);
    EVP_MD_CTX_free(context);
    if (*fault == HUGE_SIGNATURE)
        size = 512;
    length = size + ANSWER_HEAD - 2;
    if (*fault == TOO_LONG)
        length = 2000;
    if (*fault == TOO_SHORT)
        length = 4;
    said[0] = (unsigned char)(length >> 8);
    said[1] = (unsigned char)length;
    said[6] = *fault == SAYS_NO;
    length = *fault == CUTS ? 20 : size + ANSWER_HEAD;
    return write(connection, said, length) == (ssize_t)length && *fault != CUTS;
}

static void *serve(void *connection)
{
    while (answer((int)(intptr_t)connection))
        ;
    close((int)(intptr_t)connection);
    return NULL;
}

/* In a process of its own, which is killed in the end. */
static void be_the_agent(void)
{
    while (true) {
        pthread_t thread;
        int connection = accept(listener, NULL, NULL);

        CHECK(connection >= 0);
        CHECK(pthread_create(&thread, NULL, serve, (void *)(intptr_t)connection) == 0);
        CHECK(pthread_detach(thread) == 0);
    }
}

/* Whether a signature came; then it is right. */
static bool sign(void)
{
    static const unsigned char TEXT[] = "what is signed";
    unsigned char signature[512];
    size_t length = 0;
    EVP_MD_CTX *context = EVP_MD_CTX_new(), *copy;
    bool is_signed;

    CHECK(context != NULL && EVP_DigestSignInit(context, NULL, EVP_sha256(), NULL, stub) == 1);
    CHECK(EVP_DigestSignUpdate(context, TEXT, 5) == 1 && EVP_DigestSignFinal(context, NULL, &length) == 1);
    CHECK(length <= 256);
    copy = EVP_MD_CTX_new();
    CHECK(copy != NULL && EVP_MD_CTX_copy_ex(copy, context) == 1);
    CHECK(EVP_DigestSignUpdate(copy, TEXT + 5, sizeof(TEXT) - 5) == 1);
    errno = 77;
    is_signed = EVP_DigestSignFinal(copy, signature, &length) == 1;
    CHECK(errno == 77);
    EVP_MD_CTX_free(context);
    EVP_MD_CTX_free(copy);
    if (is_signed) {
        EVP_MD_CTX *verify = EVP_MD_CTX_new();

        CHECK(verify != NULL && EVP_DigestVerifyInit(verify, NULL, EVP_sha256(), NULL, stub) == 1);
        CHECK(EVP_DigestVerify(verify, signature, length, TEXT, sizeof(TEXT)) == 1);
        EVP_MD_CTX_free(verify);
    }
    return is_signed;
}

static void *sign_often(void *unused)
{
    (void)unused;
    for (size_t i = 0; i < ROUNDS; i++)
        CHECK(sign());
    return NULL;
}

static void sign_in_threads_and_children(void)
{
    pthread_t threads[THREADS];
    int status = -1;
    pid_t child;

    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, sign_often, NULL) == 0);
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(sign());
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(20);
        sign_often(NULL);
        _exit(0);
    }
    sign_often(NULL);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(sign());
}

/* What a stub does not do: digests that somebody hashed, and texts that are no handshake's. */
static void refuse_other_uses(void)
{
    static const unsigned char LONG[600];
    unsigned char signature[512];
    size_t length = sizeof(signature);
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new(stub, NULL);
    EVP_MD_CTX *texts = EVP_MD_CTX_new();

    CHECK(context != NULL && texts != NULL && EVP_PKEY_sign_init(context) == 1);
    CHECK(EVP_PKEY_sign(context, signature, &length, LONG, 32) != 1);
    CHECK(EVP_DigestSignInit(texts, NULL, EVP_sha256(), NULL, stub) == 1);
    CHECK(EVP_DigestSignUpdate(texts, LONG, sizeof(LONG)) != 1);
    EVP_MD_CTX_free(texts);
    EVP_PKEY_CTX_free(context);
    ERR_clear_error();
}

static EVP_PKEY *read_key(OSSL_LIB_CTX *context, const char *path)
{
    FILE *file = fopen(path, "r");
    EVP_PKEY *found;

    CHECK(file != NULL);
    found = PEM_read_PrivateKey_ex(file, NULL, NULL, NULL, context, NULL);
    CHECK(found != NULL);
    fclose(file);
    return found;
}

int main(int count, char **arguments)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    pid_t agent;

    fault = mmap(NULL, sizeof(*fault), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(fault != MAP_FAILED);
    CHECK(count == 4 && strlen(arguments[1]) < sizeof(address.sun_path));
    strcpy(address.sun_path, arguments[1]);
    stub = read_key(NULL, arguments[2]);
    key = read_key(NULL, arguments[3]);
    CHECK(!sign());
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(listener, (struct sockaddr *)&address, sizeof(address)) == 0 && listen(listener, 64) == 0);
    agent = fork();
    CHECK(agent >= 0);
    if (agent == 0)
        be_the_agent();
    CHECK(sign());
    for (int wrong = NONE; wrong < FAULTS; wrong++) {
        *fault = wrong;
        CHECK(sign() == (wrong == NONE));
        ERR_clear_error();
        *fault = NONE;
        CHECK(sign());
    }
    refuse_other_uses();
    sign_in_threads_and_children();
    CHECK(kill(agent, SIGKILL) == 0 && waitpid(agent, NULL, 0) == agent);
    CHECK(!sign());
    ERR_clear_error();
    EVP_PKEY_free(stub);
    EVP_PKEY_free(key);
    return 0;
}
