package headrace.suites;

/**
 * A test asked for something that a broker in another process does not have. It is an {@link Error} so that the tests'
 * own loops, which retry after every {@link Exception}, end at once.
 */
public final class NotApplicable extends Error {
    NotApplicable(String reason) {
        super(reason);
    }
}
