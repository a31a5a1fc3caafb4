// Ends this JVM when the pipe on its standard input closes, or when its parent process ends (a fork of the
// parent may hold the pipe open).
class Lifetime {
    static final long GRACE_MS = 2000

    static void end(int code) {
        // Shutdown hooks close Derby. If one of them hangs, the JVM halts anyway: Derby recovers.
        Thread.startDaemon { Thread.sleep(GRACE_MS); Runtime.runtime.halt(code) }
        System.exit(code)
    }

    static void tieTo(long parent) {
        // Reflection is needed because Groovy 2.4 cannot call static methods of interfaces.
        def found = ProcessHandle.getMethod('of', long).invoke(null, parent)
        if (found.present) {
            found.get().onExit().thenRun { end(0) }
        } else {
            end(0)
        }
    }

    static void tieToInput(InputStream input) {
        Thread.startDaemon { while (input.read() >= 0) { } ; end(0) }
    }
}
