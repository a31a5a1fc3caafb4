// Serves random listings from memory to Hive's own AcidUtils.getAcidState.
// One case per line on stdin: write ids TAB transactions TAB path:size,path:size,…
// One answer per line on stdout; see test_acid_snapshot_judge.py.
import groovy.transform.CompileStatic
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.*
import org.apache.hadoop.fs.permission.FsPermission
import org.apache.hadoop.hive.common.*
import org.apache.hadoop.hive.ql.io.*
import org.apache.hadoop.util.Progressable
import org.apache.hive.common.util.Ref

@CompileStatic
class ListingFs extends FileSystem {
  static final String ROOT = '/t'
  // Static, because Hive opens files by a file system of its own, found by the scheme.
  static TreeMap<String, Long> files = new TreeMap<>()
  static byte[] plainOrc

  void serve(String listing) {
    files.clear()
    for (String item : listing.split(',')) {
      if (item.isEmpty()) continue
      int at = item.lastIndexOf(':')
      files.put(ROOT + '/' + item.substring(0, at), Long.parseLong(item.substring(at + 1)))
    }
  }

  URI getUri() { URI.create('listing:///') }
  FileStatus status(String path) {
    long size = (files.get(path) == 0L) ? 0L : (path.endsWith('.orc') || isOriginal(path)) ? (long) plainOrc.length : (long) files.get(path)
    new FileStatus(size, false, 1, 1024L, 0L, 0L, new FsPermission((short) 420), 'o', 'g', new Path('listing://' + path))
  }
  static boolean isOriginal(String path) { path.substring(path.lastIndexOf('/') + 1) ==~ /[0-9]+_[0-9]+(_copy_[0-9]+)?/ }
  FileStatus getFileStatus(Path p) {
    String path = p.toUri().path
    if (files.containsKey(path)) return status(path)
    if (files.keySet().any { String it -> it.startsWith(path + '/') }) return new FileStatus(0L, true, 1, 1024L, 0L, p)
    throw new FileNotFoundException(path)
  }
  FileStatus[] listStatus(Path p) {
    String prefix = p.toUri().path + '/'
    List<FileStatus> found = []
    Set<String> dirs = new TreeSet<>()
    for (String path : files.keySet()) {
      if (!path.startsWith(prefix)) continue
      String rest = path.substring(prefix.length())
      int slash = rest.indexOf('/')
      if (slash < 0) found.add(status(path)) else dirs.add(rest.substring(0, slash))
    }
    for (String dir : dirs) found.add(new FileStatus(0L, true, 1, 1024L, 0L, new Path(p, dir)))
    found.toArray(new FileStatus[0])
  }
  RemoteIterator<LocatedFileStatus> listFiles(Path p, boolean recursive) {
    Iterator<String> all = files.keySet().iterator()
    new RemoteIterator<LocatedFileStatus>() {
      boolean hasNext() { all.hasNext() }
      LocatedFileStatus next() { new LocatedFileStatus(status(all.next()), new BlockLocation[0]) }
    }
  }
  FSDataInputStream open(Path p, int buffer) {
    String path = p.toUri().path
    if (!files.containsKey(path)) throw new FileNotFoundException(path)
    byte[] content = files.get(path) == 0L ? new byte[0]
      : path.endsWith('_metadata_acid') ? '{"thisFileVersion":"0","dataFormat":"truncated"}'.bytes : plainOrc
    new FSDataInputStream(new Bytes(content))
  }
  FSDataOutputStream create(Path p, FsPermission f, boolean o, int b, short r, long s, Progressable g) { throw new IOException() }
  FSDataOutputStream append(Path p, int b, Progressable g) { throw new IOException() }
  boolean rename(Path a, Path b) { false }
  boolean delete(Path p, boolean r) { false }
  void setWorkingDirectory(Path p) {}
  Path getWorkingDirectory() { new Path('listing:///') }
  boolean mkdirs(Path p, FsPermission f) { false }
}

@CompileStatic
class Bytes extends ByteArrayInputStream implements Seekable, PositionedReadable {
  byte[] content
  Bytes(byte[] c) { super(c); content = c }
  void seek(long to) { reset(); skip(to) }
  long getPos() { (long) pos }
  boolean seekToNewSource(long to) { false }
  int read(long from, byte[] into, int at, int length) {
    int n = Math.min(length, (int) (content.length - from))
    System.arraycopy(content, (int) from, into, at, n); n
  }
  void readFully(long from, byte[] into, int at, int length) { read(from, into, at, length) }
  void readFully(long from, byte[] into) { read(from, into, 0, into.length) }
}

@CompileStatic
class Judge {
  static ValidReadTxnList txns(String text) { def list = new ValidReadTxnList(); list.readFromString(text); list }
  static String name(Path p) { p.toUri().path.substring(ListingFs.ROOT.length() + 1) }
  static String sorted(Collection<String> names) { names.sort(false).unique(false).join(',') }

  static String answer(ListingFs fs, Configuration conf, String[] parts) {
    fs.serve(parts.length > 2 ? parts[2] : '')
    conf.set(ValidTxnList.VALID_TXNS_KEY, parts[1])
    def ids = new ValidReaderWriteIdList(); ids.readFromString(parts[0])
    Path root = new Path('listing://' + ListingFs.ROOT)
    Map<Path, AcidUtils.HdfsDirSnapshot> snapshots = new LinkedHashMap<>()
    def listed = AcidUtils.getHdfsDirSnapshots(fs, root)
    for (Path path : listed.keySet().sort(false) { Path p -> order(p) }) snapshots.put(path, listed.get(path))
    AcidDirectory state
    try {
      state = AcidUtils.getAcidState(fs, root, conf, ids, Ref.from(false), true, snapshots)
    } catch (IOException e) {
      return 'error\t' + e.message.replaceAll('[\\t\\n]', ' ')
    }
    String base = state.base == null ? '' : name(state.base.baseDirPath) + (state.base.rawFormat ? '*' : '')
    String current = state.currentDirectories.collect { AcidUtils.ParsedDelta d -> name(d.path) + (d.rawFormat ? '*' : '') }.join(',')
    List<String> files = []
    for (AcidUtils.ParsedDelta d : state.currentDirectories) {
      d.getFiles(fs, null).each { files.add(name(it.fileStatus.path)) }
    }
    if (state.base != null) state.base.getFiles(fs, null).each { files.add(name(it.fileStatus.path)) }
    [base, current,
     state.originalFiles.collect { name(it.fileStatus.path) }.join(','),
     sorted(state.obsolete.collect { Path p -> name(p) }),
     sorted(state.abortedDirectories.collect { Path p -> name(p) }),
     new TreeSet<Long>(state.abortedWriteIds).join(','),
     state.hasUncompactedAborts() ? '1' : '0',
     sorted(files),
     [1L, 2L, 3L, 5L, 8L].collect { Long low -> [0L, 1L, 4L].collect { Long w ->
        ids.isWriteIdRangeValid(low, low + w).toString()[0] + ids.isWriteIdRangeAborted(low, low + w).toString()[0] }.join('') }.join('')
       + ' ' + ids.writeToString() + ' ' + txns(parts[1]).writeToString()].join('\t')
  }

  // Bases from the highest down; of one write id the compacted ones last, so that the choice is settled.
  static String order(Path p) {
    if (!p.name.startsWith('base_')) return 'z' + p.toString()
    def base = AcidUtils.ParsedBaseLight.parseBase(p)
    String.format('a%020d%020d%s', Long.MAX_VALUE - 1L - Math.max(0L, base.writeId) + (base.writeId < 0 ? 1L : 0L), base.visibilityTxnId, p.toString())
  }
}

def conf = new Configuration(false)
ListingFs.plainOrc = new File(args[0]).bytes
def fs = new ListingFs()
conf.classLoader = ListingFs.classLoader
fs.setConf(conf)
conf.set('fs.listing.impl', 'ListingFs')
def out = new PrintStream(new FileOutputStream(args[1]), true)
System.in.eachLine('UTF-8') { String line -> out.println(Judge.answer(fs, conf, line.split('\t', -1))) }
out.close()
System.exit(0)
