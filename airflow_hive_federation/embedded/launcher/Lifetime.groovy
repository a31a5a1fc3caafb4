// Ends this JVM with its parent: when the pipe on its standard input closes, or the parent's process is gone
// (a fork of the parent may hold the pipe open).
class Lifetime {
    static final long GRACE_MS = 2000

    static void end(int code) {
        // Shutdown hooks close Derby. Should one of them hang, the JVM goes all the same: Derby recovers.
        Thread.startDaemon { Thread.sleep(GRACE_MS); Runtime.runtime.halt(code) }
        System.exit(code)
    }

    static void tieTo(long parent) {
        // By reflection: Groovy 2.4 cannot call static methods of interfaces.
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
