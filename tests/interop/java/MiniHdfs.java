import java.io.File;
import java.net.InetSocketAddress;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/**
 * An HDFS in this process, on loopback: a name node and two data nodes. It prints the address of
 * the filesystem and that of WebHDFS, and ends with its standard input.
 */
public final class MiniHdfs {
    private MiniHdfs() {
    }

    public static void main(String[] args) throws Exception {
        Configuration conf = new Configuration();
        // Small files, and no waiting for disks at every change.
        conf.setInt("dfs.namenode.fs-limits.min-block-size", 0);
        conf.setBoolean("dfs.permissions.enabled", true);
        MiniDFSCluster cluster =
                new MiniDFSCluster.Builder(conf, new File(args[0])).numDataNodes(2).build();
        cluster.waitActive();
        InetSocketAddress http = cluster.getNameNode().getHttpAddress();
        System.out.println(
                cluster.getURI() + " http://" + http.getHostString() + ":" + http.getPort());
        System.out.flush();
        while (System.in.read() >= 0) {
            continue;
        }
        cluster.shutdown();
        System.exit(0);
    }
}
