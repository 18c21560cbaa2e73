import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import org.apache.hadoop.fs.FsShell;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.namenode.NameNode;
import org.apache.hadoop.hdfs.tools.DFSAdmin;
import org.apache.hadoop.metrics2.lib.DefaultMetricsSystem;
import org.apache.hadoop.util.Tool;
import org.apache.hadoop.util.ToolRunner;

/**
 * A name node or a data node for tests, by the configuration on its class path: namenode, format (which goes on as a
 * name node) or datanode. It ends when its standard input does, so that no server outlives the tests. Lines of its input
 * are commands of administration ("dfsadmin -safemode enter", "dfs -mkdir /x"), each answered by "COMMAND RETURNED n".
 */
public final class Launcher {
  private Launcher() {}

  public static void main(String[] args) {
    try {
      run(args[0]);
    } catch (Throwable error) {
      error.printStackTrace();
    }
    Runtime.getRuntime().halt(1); // threads of a server that failed would go on
  }

  private static void run(String what) throws Exception {
    Thread commands = new Thread(Launcher::serve, "commands");
    commands.setDaemon(true);
    commands.start();
    HdfsConfiguration conf = new HdfsConfiguration();
    if (what.equals("datanode")) {
      DataNode.secureMain(new String[0], null);
      return;
    }
    if (what.equals("format")) {
      DefaultMetricsSystem.setMiniClusterMode(true); // one process may register its metrics twice
      NameNode.format(conf);
    }
    NameNode.createNameNode(new String[0], conf).join();
  }

  private static void serve() {
    try (BufferedReader lines = new BufferedReader(new InputStreamReader(System.in))) {
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        String[] words = line.split(" ");
        int code = 255;
        try {
          HdfsConfiguration conf = new HdfsConfiguration();
          Tool tool = words[0].equals("dfsadmin") ? new DFSAdmin(conf) : new FsShell(conf);
          code = ToolRunner.run(tool, Arrays.copyOfRange(words, 1, words.length));
        } catch (Exception error) {
          error.printStackTrace();
        }
        System.out.println("COMMAND RETURNED " + code);
        System.out.flush();
      }
    } catch (java.io.IOException error) {
      error.printStackTrace();
    }
    Runtime.getRuntime().halt(1);
  }
}
