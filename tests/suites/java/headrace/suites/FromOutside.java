package headrace.suites;

import org.mockito.MockMakers;
import org.mockito.Mockito;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;

/**
 * Objects of Kafka's types that answer what another object has methods for; every other call ends the test as not
 * applicable. Nothing is stubbed: a test gets a real value, or it does not run. Mockito makes those of classes, because
 * their constructors would start servers.
 */
final class FromOutside implements InvocationHandler {
    private final HeadraceCluster cluster;
    private final Class<?> type;
    private final Object answers;

    private FromOutside(HeadraceCluster cluster, Class<?> type, Object answers) {
        this.cluster = cluster;
        this.type = type;
        this.answers = answers;
    }

    static <T> T of(HeadraceCluster cluster, Class<T> type, Object answers) {
        InvocationHandler handler = new FromOutside(cluster, type, answers);
        if (!type.isInterface())
            return Mockito.mock(type, Mockito.withSettings().mockMaker(MockMakers.SUBCLASS).stubOnly()
                .defaultAnswer(call -> handler.invoke(call.getMock(), call.getMethod(), call.getArguments())));
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, handler));
    }

    @Override
    public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
        Method answer;
        try {
            answer = answers.getClass().getMethod(method.getName(), method.getParameterTypes());
        } catch (NoSuchMethodException error) {
            throw cluster.cannot("looks inside the broker's JVM: " + type.getSimpleName() + "." + method.getName());
        }
        answer.setAccessible(true);
        try {
            return answer.invoke(answers, arguments);
        } catch (InvocationTargetException error) {
            throw error.getCause();
        }
    }
}
